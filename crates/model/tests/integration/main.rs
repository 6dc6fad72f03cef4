//! Tests of the public API, with published models and figures, and with files from other packages.

#![expect(clippy::print_stdout, reason = "the deviations are the result")]

mod accelerate;
mod answer;
mod checkpoints;
mod configurations;
mod llama;
mod mixtures;
mod models;
mod optimal;
mod packages;
mod published;
