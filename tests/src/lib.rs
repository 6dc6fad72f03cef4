//! Nothing: Cargo wants a library target beside the tests, which are named in `Cargo.toml`.
