"""One FP8 linear layer as a program in Python would run it, by ctypes and numpy: linear_layer.py LIBRARY. On the CPU.

Checks what comes out against its own reference.
"""

import ctypes
import sys

import numpy as np

OK, LAUNCH_DEFAULT = 0, 0
c_int64_p, c_void_pp = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_void_p)


class Struct(ctypes.Structure):
    """A struct of crossover.h: its first field is set to its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


def struct(name, *fields):
    return type(name, (Struct,), {"_fields_": [("struct_size", ctypes.c_size_t), *fields]})


OpenOptions = struct(
    "OpenOptions", ("database", ctypes.c_char_p), ("device", ctypes.c_char_p), ("on_miss", ctypes.c_int32),
    ("l2", ctypes.c_int32), ("max_rows", ctypes.c_int64), ("budget_s", ctypes.c_double))
Weights = struct("Weights", ("count", ctypes.c_size_t), ("data", c_void_pp), ("row_strides", c_int64_p))
BindOptions = struct(
    "BindOptions", ("operation", ctypes.c_char_p), ("problem", ctypes.c_char_p), ("weights", ctypes.POINTER(Weights)),
    ("policy", ctypes.c_void_p))
Arguments = struct(
    "Arguments", ("input_count", ctypes.c_size_t), ("inputs", c_void_pp), ("output_count", ctypes.c_size_t),
    ("outputs", c_void_pp), ("input_row_strides", c_int64_p), ("output_row_strides", c_int64_p))
LaunchOptions = struct(
    "LaunchOptions", ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t), ("stream", ctypes.c_void_p),
    ("launch_mode", ctypes.c_int32), ("reserved", ctypes.c_int32))
Choice = struct("Choice", ("arm", ctypes.c_char_p), ("origin_name", ctypes.c_char_p), ("origin", ctypes.c_int32),
                ("reserved", ctypes.c_int32))


def pointers(*arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


class Crossover:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.crossover_last_error.restype = ctypes.c_char_p

    def __call__(self, function, *arguments):
        if getattr(self.library, "crossover_" + function)(*arguments) != OK:
            raise RuntimeError(f"{function}: {self.library.crossover_last_error().decode()}")


class Linear:
    """A linear layer: weights in e4m3, a scale per 128 x 128 block of them, activations and results in bf16."""

    def __init__(self, crossover, runtime, w, scales, max_rows):
        self.crossover, self.w, self.scales = crossover, w, scales  # crossover copies no weights
        n, k = w.shape
        weights = Weights(count=2, data=pointers(w, scales))
        options = BindOptions(operation=b"fp8_block_linear", problem=f"n={n},k={k},dtype=bf16".encode(),
                              weights=ctypes.pointer(weights))
        self.bound = ctypes.c_void_p()
        crossover("bind", runtime, ctypes.byref(options), ctypes.byref(self.bound))
        size = ctypes.c_size_t()
        crossover("workspace_bytes", self.bound, ctypes.c_int64(max_rows), ctypes.byref(size))
        self.memory = np.empty(size.value + 256, np.uint8)
        self.how = LaunchOptions(workspace=(self.memory.ctypes.data + 255) // 256 * 256, workspace_bytes=size.value)

    def forward(self, x):
        y = np.full((len(x), len(self.w)), 0xFFFF, np.uint16)
        arguments = Arguments(input_count=1, inputs=pointers(x), output_count=1, outputs=pointers(y))
        self.crossover("launch", self.bound, ctypes.c_int64(len(x)), ctypes.byref(arguments), ctypes.byref(self.how))
        return y

    def choice(self, rows):
        choice = Choice()
        self.crossover("select", self.bound, ctypes.c_int64(rows), LAUNCH_DEFAULT, ctypes.byref(choice))
        return choice.arm.decode(), choice.origin_name.decode()

    def close(self):
        self.crossover("unbind", self.bound)


def from_e4m3(codes):
    exponent, mantissa = (codes >> 3 & 15).astype(int), (codes & 7).astype(float)
    magnitude = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent - 10))
    return np.where(codes & 128, -magnitude, magnitude)


def from_bf16(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(float)


def main():
    n, k, max_rows = 192, 320, 64
    random = np.random.default_rng(1)
    w = random.integers(0, 256, (n, k), np.uint8)
    w[w & 127 == 127] = 0  # not a number
    scales = random.uniform(0.01, 0.1, (-(-n // 128), -(-k // 128))).astype(np.float32)
    x = (random.standard_normal((max_rows, k)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    reference = from_bf16(x) @ (from_e4m3(w) * np.kron(scales, np.ones((128, 128)))[:n, :k]).T

    crossover = Crossover(sys.argv[1])
    runtime = ctypes.c_void_p()
    crossover("open", ctypes.byref(OpenOptions(device=b"cpu", max_rows=max_rows, budget_s=0.5)), ctypes.byref(runtime))
    layer = Linear(crossover, runtime, w, scales, max_rows)
    for rows in (1, 7, max_rows):
        y = from_bf16(layer.forward(x[:rows]))
        error = np.linalg.norm(y - reference[:rows]) / np.linalg.norm(reference[:rows])
        arm, origin = layer.choice(rows)
        print(f"{rows:2} rows: {arm} ({origin}), relative error {error:.1e}")
        if not error < 4e-3:
            sys.exit("wrong result")
    layer.close()
    crossover("close", runtime)


main()
