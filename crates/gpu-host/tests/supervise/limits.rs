//! Limits that a process inherited.

use crate::Test;
use gpu_host::raise_open_file_limit;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) const TESTS: &[Test] =
    &[("open_file_limit_is_raised_to_the_hard_limit", open_file_limit_is_raised_to_the_hard_limit)];

fn open_file_limit_is_raised_to_the_hard_limit() {
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..usual }).unwrap();
    raise_open_file_limit();
    let raised = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, usual).unwrap();
    assert_eq!(raised, Rlimit { current: usual.maximum, ..usual });
}
