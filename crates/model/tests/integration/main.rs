//! Tests of the public API, with published models and figures, and with files of other packages.

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
