//! Which devices a job should get.
