//! Companion programs of a job, each of which uses the device that it sees.

use super::{Happening, SELF, World, process, uuid};
use gpu_core::*;

/// Starts one; it appears on its device after a time.
pub(super) fn start(world: &World, launch: &Launch) -> Result<Box<dyn Companion>> {
    let mut state = world.state();
    if let Some(kind) = state.accompany_fault {
        return Err(Error::new(kind, "start 'placeholder'"));
    }
    let pid = 1000 + state.accompanied.len() as u32;
    state.add(process(pid, SELF, "placeholder"));
    state.accompanied.push((pid, launch.clone()));
    let (_, visible) = launch.set.iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").unwrap();
    let device = (0..).find(|index| uuid(*index).0 == visible.to_str().unwrap()).unwrap();
    if let Some(delay) = state.shows_after {
        let at = state.now + delay;
        let shows: Happening = Box::new(move |state| {
            if state.processes.contains_key(&pid) {
                state.uses(pid, device as usize, 400);
            }
        });
        state.script.push((at, shows));
    }
    Ok(Box::new(Accompanies(world.clone(), pid)))
}

struct Accompanies(World, u32);

impl Companion for Accompanies {
    fn pid(&self) -> Pid {
        Pid(self.1)
    }

    fn ended(&mut self) -> Result<Option<String>> {
        let runs = self.0.state().processes.contains_key(&self.1);
        Ok((!runs).then(|| "CUDA error 2".to_owned()))
    }

    fn kill(&mut self) {
        let (pid, mut state) = (self.1, self.0.state());
        let at = state.now + state.companions_linger;
        if state.companions_linger.is_zero() {
            state.ends(pid, JobExit::Signal(9))
        } else {
            let ends: Happening = Box::new(move |state| state.ends(pid, JobExit::Signal(9)));
            state.script.push((at, ends));
        }
    }
}

impl Drop for Accompanies {
    fn drop(&mut self) {
        self.kill();
    }
}
