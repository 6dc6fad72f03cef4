//! Tests of the public API.

mod damage;
mod hostile;
mod kept;
mod recorder;
mod round_trip;
mod world;
