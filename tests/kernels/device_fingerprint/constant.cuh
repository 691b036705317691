#pragma once
// A header.
constexpr float kConstant = 4;
