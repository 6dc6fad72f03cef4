//! The actions of a user that follows no rules: any call on any file, as far as the kernel permits.

use crate::claimant::Layout;
use crate::dir::{Dir, File, Name, STRANGER, Text};
use crate::explore::CLAIMANTS;
use crate::machine::{Machine, State, Steps};
use crate::rule::{DEVICES, TOTAL};

/// Adds everything that a user may do to files of its own and of others.
pub(crate) fn moves(machine: &Machine, steps: &mut Steps<'_>) {
    let count = machine.setups.len() as u8;
    let mut dirs: Vec<Dir> = machine.setups.iter().map(|setup| Dir::Of(setup.owner)).collect();
    dirs.extend([Dir::Of(STRANGER), Dir::Elsewhere]);
    if machine.rules.layout == Layout::Flat {
        dirs = vec![Dir::Shared, Dir::Elsewhere];
    }
    dirs.sort_unstable();
    dirs.dedup();
    let names: Vec<Name> =
        (0..=count).flat_map(|id| [Name::Try(id), Name::Lease(id), Name::Kept(id)]).collect();
    let places: Vec<(Dir, Name)> = dirs
        .iter()
        .flat_map(|dir| names.iter().map(|name| (*dir, *name)))
        .filter(|(dir, name)| *dir != Dir::Elsewhere || *name == Name::Kept(count))
        .collect();
    let text = |id, devices| Text { id, ticket: 0, devices, memory: TOTAL, within: None };
    let own = machine.table() + 1;
    let free = [own, own + 1].into_iter().find(|own| steps.from.dirs.file(*own).is_none());
    for (dir, name) in &places {
        let (Name::Try(id) | Name::Lease(id) | Name::Kept(id)) = *name else { continue };
        // An entry with a nonexistent device takes nothing.
        for devices in [DEVICES, 0b100] {
            let Some(free) = free else { continue };
            let file = File {
                owner: STRANGER,
                all_write: false,
                text: Some(text(id, devices)),
                author: STRANGER,
                locked: strangers_process(),
            };
            act(
                steps,
                &|| format!("makes {name:?} in {dir:?}, on devices {devices:03b}, locked"),
                &|state| state.dirs.create(STRANGER, *dir, *name, free, file),
            );
        }
        for inode in 0..=own + 1 {
            act(steps, &|| format!("links file {inode} to {name:?} in {dir:?}"), &|state| {
                state.dirs.link(STRANGER, inode, *dir, *name)
            });
        }
        for (from, old, _) in steps.from.dirs.names() {
            act(
                steps,
                &|| format!("renames {old:?} in {from:?} to {name:?} in {dir:?}"),
                &|state| state.dirs.rename(STRANGER, (*from, *old), (*dir, *name)),
            );
        }
    }
    for (dir, name, inode) in steps.from.dirs.names() {
        act(steps, &|| format!("unlinks {name:?} in {dir:?}"), &|state| {
            state.dirs.unlink(STRANGER, *dir, *name)
        });
        act(steps, &|| format!("locks {name:?} in {dir:?}"), &|state| {
            state.dirs.lock(STRANGER, *inode, strangers_process())
        });
        if let Name::Try(id) | Name::Lease(id) = *name {
            act(
                steps,
                &|| format!("writes an entry into {name:?} in {dir:?} and locks it"),
                &|state| {
                    state.dirs.write(STRANGER, *inode, text(id, DEVICES))
                        && (state.dirs.is_locked(*inode)
                            || state.dirs.lock(STRANGER, *inode, strangers_process()))
                },
            );
        }
    }
    act(steps, &|| "ends, with all his locks".to_owned(), &|state| {
        state.dirs.end(strangers_process());
        state.dirs != steps.from.dirs
    });
}

fn act(steps: &mut Steps<'_>, words: &dyn Fn() -> String, after: &dyn Fn(&mut State) -> bool) {
    steps.add(
        CLAIMANTS + 1,
        || format!("the stranger {}", words()),
        |state| {
            state.moves -= 1;
            after(state)
        },
    );
}

/// The stranger's process.
fn strangers_process() -> u16 {
    1 << 7
}
