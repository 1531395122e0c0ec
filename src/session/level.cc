namespace cento {}
