//! The screen of `gpuws top`: what it shows of simulated machines, also as pictures, and what is left
//! of it after a panic.

mod panic;
mod pictures;
mod screens;
mod svg;
