//! Replays: recorded jobs compared with their recordings, synthetic jobs with brute force.

mod needs;
mod recorded;
mod recorder;
mod synthetic;
