//! A simulated NVML.
