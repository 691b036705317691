#pragma once
// A header that the arm includes.
constexpr int kConstant = 4;
