//! Tests of the public API.

mod damage;
mod hostile;
mod recorder;
mod round_trip;
mod world;
