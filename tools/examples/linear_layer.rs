//! The FP8 linear layer of an inference engine in Rust, on the C interface: no crate but std. On the CPU.
//!
//!     rustc --edition 2021 linear_layer.rs -L PREFIX/lib
//!
//! Checks what comes out against its own reference.

use std::ffi::{c_void, CStr, CString};
use std::os::raw::c_char;
use std::{fmt, mem, ptr};

/// What is used of crossover.h.
mod ffi {
    use super::*;

    pub const OK: i32 = 0;
    pub const LAUNCH_DEFAULT: i32 = 0;
    pub enum Runtime {}
    pub enum Bound {}

    #[repr(C)]
    pub struct OpenOptions {
        pub struct_size: usize,
        pub database: *const c_char,
        pub device: *const c_char,
        pub on_miss: i32,
        pub l2: i32,
        pub max_rows: i64,
        pub budget_s: f64,
    }
    #[repr(C)]
    pub struct Weights {
        pub struct_size: usize,
        pub count: usize,
        pub data: *const *const c_void,
        pub row_strides: *const i64,
    }
    #[repr(C)]
    pub struct BindOptions {
        pub struct_size: usize,
        pub operation: *const c_char,
        pub problem: *const c_char,
        pub weights: *const Weights,
        pub policy: *const c_void,
    }
    #[repr(C)]
    pub struct Arguments {
        pub struct_size: usize,
        pub input_count: usize,
        pub inputs: *const *const c_void,
        pub output_count: usize,
        pub outputs: *const *mut c_void,
        pub input_row_strides: *const i64,
        pub output_row_strides: *const i64,
    }
    #[repr(C)]
    pub struct LaunchOptions {
        pub struct_size: usize,
        pub workspace: *mut c_void,
        pub workspace_bytes: usize,
        pub stream: *mut c_void,
        pub launch_mode: i32,
        pub reserved: i32,
    }
    #[repr(C)]
    pub struct Choice {
        pub struct_size: usize,
        pub arm: *const c_char,
        pub origin_name: *const c_char,
        pub origin: i32,
        pub reserved: i32,
    }

    #[link(name = "crossover")]
    extern "C" {
        pub fn crossover_last_error() -> *const c_char;
        pub fn crossover_open(options: *const OpenOptions, runtime: *mut *mut Runtime) -> i32;
        pub fn crossover_close(runtime: *mut Runtime) -> i32;
        pub fn crossover_bind(runtime: *mut Runtime, options: *const BindOptions, bound: *mut *mut Bound) -> i32;
        pub fn crossover_unbind(bound: *mut Bound) -> i32;
        pub fn crossover_workspace_bytes(bound: *const Bound, rows: i64, bytes: *mut usize) -> i32;
        pub fn crossover_select(bound: *const Bound, rows: i64, mode: i32, choice: *mut Choice) -> i32;
        pub fn crossover_launch(
            bound: *const Bound,
            rows: i64,
            arguments: *const Arguments,
            options: *const LaunchOptions,
        ) -> i32;
    }
}

#[derive(Debug)]
struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn checked(status: i32) -> Result<(), Error> {
    if status == ffi::OK {
        return Ok(());
    }
    // Valid until the next call of this thread that fails.
    let message = unsafe { CStr::from_ptr(ffi::crossover_last_error()) };
    Err(Error(message.to_string_lossy().into_owned()))
}

fn text(pointer: *const c_char) -> String {
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A device with the database. One per process.
struct Runtime(*mut ffi::Runtime);

impl Runtime {
    fn open(device: &str, max_rows: usize, budget_s: f64) -> Result<Self, Error> {
        let device = CString::new(device).unwrap();
        let options = ffi::OpenOptions {
            struct_size: mem::size_of::<ffi::OpenOptions>(),
            database: ptr::null(),
            device: device.as_ptr(),
            on_miss: 0,
            l2: 0,
            max_rows: max_rows as i64,
            budget_s,
        };
        let mut runtime = ptr::null_mut();
        checked(unsafe { ffi::crossover_open(&options, &mut runtime) })?;
        Ok(Self(runtime))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        unsafe { ffi::crossover_close(self.0) };
    }
}

#[repr(align(256))]
#[derive(Clone)]
struct Line([u8; 256]);

/// y = x · dequant(w, scales)ᵀ: w in e4m3, one scale per 128 × 128 block, x and y in bf16. Owns what it was loaded with.
struct Fp8Linear {
    bound: *mut ffi::Bound,
    _w: Vec<u8>,
    _scales: Vec<f32>,
    workspace: Vec<Line>,
    n: usize,
    k: usize,
}

impl Fp8Linear {
    fn load(runtime: &Runtime, n: usize, k: usize, w: Vec<u8>, scales: Vec<f32>, max_rows: usize) -> Result<Self, Error> {
        assert_eq!(w.len(), n * k);
        assert_eq!(scales.len(), ((n + 127) / 128) * ((k + 127) / 128));
        let data = [w.as_ptr() as *const c_void, scales.as_ptr() as *const c_void];
        let weights = ffi::Weights {
            struct_size: mem::size_of::<ffi::Weights>(),
            count: data.len(),
            data: data.as_ptr(),
            row_strides: ptr::null(),
        };
        let operation = CString::new("fp8_block_linear").unwrap();
        let problem = CString::new(format!("n={n},k={k},dtype=bf16")).unwrap();
        let options = ffi::BindOptions {
            struct_size: mem::size_of::<ffi::BindOptions>(),
            operation: operation.as_ptr(),
            problem: problem.as_ptr(),
            weights: &weights,
            policy: ptr::null(),
        };
        let mut layer = Self { bound: ptr::null_mut(), _w: w, _scales: scales, workspace: Vec::new(), n, k };
        checked(unsafe { ffi::crossover_bind(runtime.0, &options, &mut layer.bound) })?;
        let mut bytes = 0;
        checked(unsafe { ffi::crossover_workspace_bytes(layer.bound, max_rows as i64, &mut bytes) })?;
        layer.workspace = vec![Line([0; 256]); bytes / 256];
        Ok(layer)
    }

    fn forward(&mut self, x: &[u16]) -> Result<Vec<u16>, Error> {
        let rows = x.len() / self.k;
        let mut y = vec![0xFFFF_u16; rows * self.n];
        let inputs = [x.as_ptr() as *const c_void];
        let outputs = [y.as_mut_ptr() as *mut c_void];
        let arguments = ffi::Arguments {
            struct_size: mem::size_of::<ffi::Arguments>(),
            input_count: 1,
            inputs: inputs.as_ptr(),
            output_count: 1,
            outputs: outputs.as_ptr(),
            input_row_strides: ptr::null(),
            output_row_strides: ptr::null(),
        };
        let how = ffi::LaunchOptions {
            struct_size: mem::size_of::<ffi::LaunchOptions>(),
            workspace: if self.workspace.is_empty() { ptr::null_mut() } else { self.workspace.as_mut_ptr().cast() },
            workspace_bytes: self.workspace.len() * 256,
            stream: ptr::null_mut(),
            launch_mode: ffi::LAUNCH_DEFAULT,
            reserved: 0,
        };
        checked(unsafe { ffi::crossover_launch(self.bound, rows as i64, &arguments, &how) })?;
        Ok(y)
    }

    /// The arm that `rows` rows run, and how that came about.
    fn choice(&self, rows: usize) -> Result<(String, String), Error> {
        let mut choice = ffi::Choice {
            struct_size: mem::size_of::<ffi::Choice>(),
            arm: ptr::null(),
            origin_name: ptr::null(),
            origin: 0,
            reserved: 0,
        };
        checked(unsafe { ffi::crossover_select(self.bound, rows as i64, ffi::LAUNCH_DEFAULT, &mut choice) })?;
        Ok((text(choice.arm), text(choice.origin_name)))
    }
}

impl Drop for Fp8Linear {
    fn drop(&mut self) {
        unsafe { ffi::crossover_unbind(self.bound) };
    }
}

fn from_e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = ((code >> 3 & 15) as i32, (code & 7) as f64);
    let magnitude = if exponent == 0 { mantissa / 512.0 } else { (8.0 + mantissa) * 2_f64.powi(exponent - 10) };
    if code & 128 == 0 { magnitude } else { -magnitude }
}

fn from_bf16(code: u16) -> f64 {
    f32::from_bits((code as u32) << 16) as f64
}

/// Relative L2 distance of y from a reference in f64.
fn error_of(y: &[u16], x: &[u16], w: &[u8], scales: &[f32], n: usize, k: usize) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (index, &got) in y.iter().enumerate() {
        let (row, column) = (index / n, index % n);
        let sum: f64 = (0..k)
            .map(|i| {
                let scale = scales[column / 128 * ((k + 127) / 128) + i / 128] as f64;
                from_bf16(x[row * k + i]) * from_e4m3(w[column * k + i]) * scale
            })
            .sum();
        difference += (from_bf16(got) - sum).powi(2);
        norm += sum.powi(2);
    }
    (difference / norm).sqrt()
}

fn run() -> Result<(), Error> {
    let (n, k, max_rows) = (192, 320, 64);
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        state >> 16
    };
    let w: Vec<u8> = (0..n * k).map(|_| (next() >> 8) as u8).map(|c| if c & 127 == 127 { 0 } else { c }).collect();
    let scales: Vec<f32> = (1..=2 * 3).map(|i| 0.01 * i as f32).collect();
    let x: Vec<u16> = (0..max_rows * k).map(|_| (next() & 0x80FF | 0x3F00) as u16).collect();

    let runtime = Runtime::open("cpu", max_rows, 0.5)?;
    let mut layer = Fp8Linear::load(&runtime, n, k, w.clone(), scales.clone(), max_rows)?;
    for rows in [1, 7, max_rows] {
        let y = layer.forward(&x[..rows * k])?;
        let error = error_of(&y, &x, &w, &scales, n, k);
        let (arm, origin) = layer.choice(rows)?;
        println!("{rows:2} rows: {arm} ({origin}), relative error {error:.1e}");
        if !(error < 4e-3) {
            return Err(Error("wrong result".to_string()));
        }
    }
    // What cannot be is an error with a sentence.
    match Fp8Linear::load(&runtime, 0, 0, Vec::new(), Vec::new(), 1) {
        Ok(_) => Err(Error("a layer without columns was bound".to_string())),
        Err(error) => Ok(println!("n=0: {error}")),
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
