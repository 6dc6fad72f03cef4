//! Tests of the public API, with published models and figures.

mod accelerate;
mod answer;
mod llama;
mod models;
mod optimal;
mod published;
