//! What is sent, and above all what is not: mocks fail on any call that is not expected.

#[path = "../scene/mod.rs"]
mod scene;

mod ladder;
mod log;
mod newcomers;
mod proof;
mod rejudged;
mod scope;
mod spared;
mod stage;
