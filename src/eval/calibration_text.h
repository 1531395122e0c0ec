// Text on which a model is calibrated where no documents of the person's own are at hand.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cento {

struct CalibrationQuestion {
  std::string text;
  std::vector<size_t> gold;  // passages of the world that hold the answer
};

struct CalibrationWorld {
  std::vector<std::string> passages;  // title, line end, text; 90 to 130 tokens each
  std::vector<CalibrationQuestion> questions;
};

const std::vector<CalibrationWorld>& calibration_worlds();

}  // namespace cento
