//! `gpuws holders`: the information of `fuser -v` and `lsof` in one table.

mod args;
mod table;

pub(crate) use args::HoldersArgs;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use crate::wording::{self, path_word};
use gpu_core::{Absent, DeviceFile, HolderScan, Host, Unreadable};
use gpu_report::json::{FoundHolder, Holders};
use table::table;

/// Shows the holders of `files`, or of the GPU device files of the machine if there are none.
///
/// # Errors
/// When no file is named and the machine has no GPU device file, or `/proc` cannot be read.
pub(crate) fn run(
    args: &HoldersArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let (named, missing): (Vec<_>, Vec<_>) = args
        .files
        .iter()
        .map(|path| source.file(path).map_err(Failure::from))
        .partition(Result::is_ok);
    // As with fuser and lsof, a missing file does not hide the others.
    let mut missing = missing.into_iter().filter_map(Result::err);
    let named: Vec<DeviceFile> = named.into_iter().flatten().collect();
    if named.is_empty()
        && let Some(failure) = missing.next()
    {
        return Err(failure);
    }
    let exit = show(global, args, &*source.host, named, screen)?;
    missing.next().map_or(Ok(exit), Err)
}

/// Shows the holders of the named files, or of the GPU device files if there are none.
fn show(
    global: &Global,
    args: &HoldersArgs,
    host: &dyn Host,
    named: Vec<DeviceFile>,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let origin = &host.origin();
    let files = if named.is_empty() { host.device_files()? } else { named };
    if files.is_empty() {
        return Err(Failure::new(Exit::CannotObserve, "find a GPU device file").with_hint(
            "pass a file (gpuws holders FILE) or use a simulated machine (gpuws --sim p100-ghost \
                holders)",
        ));
    }
    let HolderScan { holders, unreadable, .. } = host.holders(&files)?;
    let found: Vec<FoundHolder> = holders
        .into_iter()
        .map(|holder| FoundHolder { info: host.process(holder.process.pid), holder })
        .collect();
    if global.json {
        screen.json(&Holders::of(origin, &files, &found, &unreadable))?;
    } else {
        screen.origin(origin, Line::new().plain(origin.to_string()), global.quiet)?;
        let table = table(&files, &found);
        let table = if global.quiet { table.without_header() } else { table };
        screen.print_all(table.lines(screen.room(0)))?;
        if !global.quiet {
            print_legend(args, host, &found, &unreadable, screen)?;
        }
    }
    Ok(if found.is_empty() { Exit::Remains } else { Exit::Done })
}

fn print_legend(
    args: &HoldersArgs,
    host: &dyn Host,
    found: &[FoundHolder],
    unreadable: &Unreadable,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if !found.is_empty() {
        let letters =
            "f open, F open for writing, m mapped, e executed, c current directory, r root";
        screen.print(&Line::new().dim(letters))?;
    }
    if unreadable.total() > 0 {
        let reasons: Vec<String> =
            unreadable.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let number = wording::count(unreadable.total() as usize, "process", "processes");
        let mut line =
            Line::new().plain(format!("{number} could not be read: {}", reasons.join(", ")));
        if unreadable.0.contains_key(&Absent::NotPermitted) && host.is_root() != Ok(true) {
            let files: String =
                args.files.iter().map(|file| format!(" {}", path_word(file))).collect();
            line = line.plain(".   ").accent(format!("sudo gpuws holders{files}"));
        }
        screen.print(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use gpu_core::{
        Access, Error, FileId, HeldFile, Holder, MockHost, Origin, Pid, ProcessFault, ProcessInfo,
        ProcessKey, StartTime,
    };

    fn file(minor: u32) -> DeviceFile {
        let id = Ok(FileId::Device { major: 195, minor });
        DeviceFile::any(format!("/dev/nvidia{minor}").into(), id)
    }

    fn holder(pid: u32, letters: &str, descriptors: std::ops::Range<u32>) -> Holder {
        Holder {
            process: ProcessKey { pid: Pid(pid), start: Some(StartTime(7)) },
            held: vec![HeldFile::of(
                &file(0),
                Access::from_letters(letters).unwrap(),
                descriptors.collect(),
            )],
            through_thread: (pid == 3).then_some(Pid(33)),
        }
    }

    fn host(origin: Origin) -> MockHost {
        let mut host = MockHost::new();
        host.expect_origin().return_const(origin);
        host.expect_is_root().returning(|| Ok(false));
        host.expect_device_files().returning(|| Ok(vec![file(0), file(1)]));
        host.expect_holders().returning(|_| {
            let mut scan = HolderScan {
                holders: vec![
                    holder(2, "F...m", 7..9),
                    holder(3, "f....", 0..8),
                    holder(4, "f....", 5..6),
                ],
                ..HolderScan::default()
            };
            scan.unreadable.count(Absent::NotPermitted);
            Ok(scan)
        });
        host.expect_process().returning(|pid| match pid.0 {
            2 => {
                let mut info = ProcessInfo::from_name(pid, "python");
                info.user = Ok("alice".into());
                info.command_line = Ok(["python", "train\x1b[2J.py"].map(str::to_owned).into());
                Ok(info)
            }
            3 => {
                let mut info = ProcessInfo::from_name(pid, "worker");
                info.uid = Ok(1001);
                Ok(info)
            }
            _ => Err(Error::new(ProcessFault::Gone, "inspect process 4")),
        });
        host
    }

    fn none() -> HoldersArgs {
        HoldersArgs { files: vec![] }
    }

    fn global(json: bool, quiet: bool) -> Global {
        Global { json, quiet, ..Global::default() }
    }

    #[test]
    fn table_combines_fuser_and_lsof_columns() {
        let host = host(Origin::Simulated("m".into()));
        let shown = Screen::captured(|screen| {
            assert_eq!(
                show(&global(false, false), &none(), &host, vec![], screen).unwrap(),
                Exit::Done
            );
        });
        assert_eq!(
            shown,
            "\
simulated machine m
FILE          USER         PID  ACCESS  FD              COMMAND
/dev/nvidia0  alice          2  F...m   7,8             python train\\x1b[2J.py
              1001           3  f....   0,1,2,3,4,5 +2  worker (through thread 33)
              (not found)    4  f....   5               (not found)
/dev/nvidia1  (no holder)
f open, F open for writing, m mapped, e executed, c current directory, r root
1 process could not be read: 1 not permitted.   sudo gpuws holders
"
        );
    }

    #[test]
    fn json_prints_null_for_absent_values() {
        let shown = Screen::captured(|screen| {
            show(&global(true, false), &none(), &host(Origin::Live), vec![], screen).unwrap();
        });
        let answer: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(answer["schema"], 1);
        assert_eq!(answer["holders"][0]["held"][0]["access"], "F...m");
        assert_eq!(answer["holders"][1]["through_thread_pid"], 33);
        assert_eq!(answer["holders"][2]["user"], serde_json::Value::Null);
        assert_eq!(answer["unreadable_process_count"], 1);
        assert_eq!(answer["unreadable_by_reason"]["not-permitted"], 1);
    }

    #[test]
    fn missing_device_files_fail_with_hint() {
        let mut host = MockHost::new();
        host.expect_origin().return_const(Origin::Live);
        host.expect_device_files().returning(|| Ok(vec![]));
        let shown = Screen::captured(|screen| {
            let failure = show(&global(false, false), &none(), &host, vec![], screen).unwrap_err();
            assert_eq!(failure.exit(), Exit::CannotObserve);
            assert!(failure.to_string().contains("\nhint: pass a file"));
        });
        assert_eq!(shown, "");
    }
}
