//! Answers the questions of the view.

use super::end::said;
use crate::failure::Failure;
use crate::source::Source;
use crate::users::user;
use gpu_core::{Environment, Error, ProcessFault, ProcessKey};
use gpu_steward::listing;
use gpu_top::Inspector;
use gpu_top::inquiry::{Answer, Inquiry, Leases};
use std::sync::Arc;

/// The machine that answers.
pub(super) struct Asked(pub(super) Arc<Source>);

impl Asked {
    fn environment(&self, key: ProcessKey) -> Result<Environment, Failure> {
        let process = self.0.host.open(key.pid)?;
        if !process.info()?.key.definitely_same(&key) {
            let what = format!("read the environment of process {key}");
            return Err(Error::new(ProcessFault::Gone, what).into());
        }
        Ok(process.environment()?)
    }

    fn leases(&self) -> Result<Leases, Failure> {
        let locks = self.0.lease_store(None)?;
        let ports = self.0.claim_ports(&locks);
        Ok(Leases::of(listing(&ports)?, &user))
    }
}

impl Inspector for Asked {
    fn answer(&self, inquiry: Inquiry) -> Answer {
        match inquiry {
            Inquiry::Environment(key) => {
                Answer::Environment(key, self.environment(key).map_err(said))
            }
            Inquiry::Leases => Answer::Leases(self.leases().map_err(said)),
        }
    }
}
