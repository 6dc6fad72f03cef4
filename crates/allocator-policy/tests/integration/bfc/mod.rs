//! TensorFlow's allocator: published cases, a naive model, and a failing device.

mod adoption;
mod cases;
mod faults;
mod properties;
mod report;
mod retired;
