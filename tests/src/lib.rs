//! Empty: Cargo requires a library target beside the tests, which are named in `Cargo.toml`.
