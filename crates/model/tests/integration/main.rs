//! Tests of the public API, with published models and figures.

mod models;
mod published;
