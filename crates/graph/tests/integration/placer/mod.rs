//! The simple placer against the cases of TensorFlow's tests, and its properties.

mod cases;
mod fixture;
mod functions;
mod kernels;
mod large;
mod peer;
mod properties;
mod random;
mod words;
