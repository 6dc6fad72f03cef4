//! The screen of `gpuws top`: what it shows of simulated machines, and what is left of it after a
//! panic.

mod panic;
mod screens;
