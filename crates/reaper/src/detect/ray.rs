//! Workers of Ray, which keep loaded data for the next task.

use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use gpu_core::Pid;

/// The name of the process that starts the workers of a node, and is the parent of them all.
const RAYLET: &str = "raylet";

/// The title of a worker without a task.
const IDLE: &str = "ray::IDLE";

/// Returns the evidence that a process is a worker of Ray; `None` for any other process.
///
/// Every process can choose the title of a worker. So its parent must be a raylet, with the same
/// owner and with a command line like that of Ray, and the process is never ended for its title:
/// this only explains memory that other evidence has found.
pub(super) fn worker(context: &DetectContext<'_>, pid: Pid) -> Option<Evidence> {
    let info = context.info(pid).filter(|info| info.name.starts_with("ray::"))?;
    let raylet = context.info(info.parent.ok()?).filter(|parent| parent.name == RAYLET)?;
    let program = raylet.command_line.as_ref().ok().and_then(|line| line.first());
    let same_owner = info.uid.is_ok() && info.uid == raylet.uid;
    if !same_owner || !program?.ends_with("/raylet/raylet") {
        return None;
    }
    let pid = raylet.key.pid;
    let text = if info.name == IDLE {
        format!(
            "an idle Ray worker (raylet {pid}), which keeps memory for its next task; max_calls=1 \
             on the remote function ends the worker after each task, and raylet replaces a killed \
             worker"
        )
    } else {
        format!("a Ray worker (raylet {pid})")
    };
    Some(Evidence::new(Sign::RayWorker, text))
}
