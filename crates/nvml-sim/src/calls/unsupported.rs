//! Functions that callers need to find, of whose subject no simulated machine tells anything.
