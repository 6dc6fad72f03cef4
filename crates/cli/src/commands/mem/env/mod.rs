//! `gpuws mem env`: environment variables that limit the memory of an unmodified program.
//!
//! Standard output is for `eval`: each line is a comment or exports one variable.

mod share;

pub(crate) use share::bounding;

use super::explain::machine;
use super::note_decimal;
use crate::args::Global;
use crate::commands::mem::EnvArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, warn};
use crate::wording::shell_word;
use gpu_core::visible::GRAMMARS;
use gpu_core::{Bytes, DeviceState, Origin, Selector, Snapshot, amount, selector::select};
use gpu_host::supervise::find_program;
use gpu_memory_advice::environment::{Advice, Bound, MPS_PIPES};
use gpu_report::json::{Bounded, Seen};
use gpu_report::wording::limit::unlimited;
use gpu_steward::{inherited as given, serves};
use share::{Known, inherited};
use std::collections::BTreeMap;

/// The width of comments.
const WIDTH: usize = 80;

pub(crate) fn run(args: &EnvArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let done = advise(args, global, screen);
    if let (Err(failure), false) = (&done, global.json) {
        // `eval` of an empty string succeeds, and the program would start without a limit.
        let code = failure.exit().code();
        screen.print(&Line::new().plain(format_args!("(exit {code})")))?;
    }
    done
}

fn advise(args: &EnvArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    note_decimal(args.device_memory);
    let variable = |name: &str| std::env::var_os(name);
    if let Some(python) = &args.python {
        find_program(python, variable("PATH").as_deref()).map_err(|error| {
            Failure::from(error).with_hint("--python takes a path, or a name in PATH: python3")
        })?;
    }
    let known = Known::of(&args.keep, args.python.as_deref(), &variable);
    let snapshot = match args.device_memory {
        Some(_) => None,
        None => machine::query(global)?,
    };
    let devices = snapshot.as_ref().map(|snapshot| chosen(snapshot, &args.gpu)).transpose()?;
    if devices.is_none() && !args.gpu.is_empty() {
        return Err(Failure::new(Exit::CannotObserve, "find the devices that --gpu names")
            .with_source("no driver is available")
            .with_hint("pass their memory size with --device-memory"));
    }
    let devices = devices.unwrap_or_default();
    let total = |device: &DeviceState| device.memory_total().ok();
    let totals: Option<Vec<Bytes>> = match args.device_memory {
        Some(total) => Some(vec![total]),
        None => devices.iter().map(total).collect(),
    };
    let totals = totals.unwrap_or_default();
    let had = inherited();
    let is_served = had.contains_key(MPS_PIPES)
        || snapshot.iter().any(|snapshot| devices.iter().any(|device| serves(snapshot, device)));
    let bound = Bound {
        limit: args.limit,
        context: args.keep.context,
        totals: &totals,
        mps: is_served.then_some(devices.len().max(1)),
        inherited: &|name| had.get(name).cloned(),
    };
    if bound.leaves_nothing() {
        let what = format!("set a limit of {}", amount(args.limit));
        return Err(Failure::new(Exit::Usage, what)
            .with_source(format!(
                "it does not exceed the {} that the CUDA context and libraries need",
                amount(args.keep.context)
            ))
            .with_hint("set the context size with --context"));
    }
    let advice = bound.advice(&known.used);
    if known.used.is_empty()
        && !bound.is_whole()
        && let Some(warning) = unlimited(&advice, args.limit)
    {
        warn(&warning);
    }
    if global.json {
        let seen = Seen { snapshot: snapshot.as_ref(), totals: &totals, is_served };
        screen.json(&Bounded::of(
            (args.limit, args.keep.context),
            &known.view(),
            &seen,
            &advice,
        ))?;
        return Ok(Exit::Done);
    }
    screen.together(|screen| show(screen, global, args, (&known, snapshot.as_ref()), &advice))?;
    Ok(Exit::Done)
}

/// Returns the devices that are visible to the program.
///
/// # Errors
/// When a named device does not exist.
fn chosen(snapshot: &Snapshot, named: &[Selector]) -> Result<Vec<DeviceState>, Failure> {
    let mig = || snapshot.devices.iter().flat_map(DeviceState::partitions_as_devices);
    if !named.is_empty() {
        let part = |selector: &Selector| match selector {
            Selector::Uuid(_) => mig().find(|device| selector.names(device.id())),
            _ => None,
        };
        let mut found: Vec<DeviceState> = named.iter().filter_map(part).collect();
        let whole: Vec<Selector> =
            named.iter().filter(|selector| part(selector).is_none()).cloned().collect();
        if !whole.is_empty() {
            found.extend(select(snapshot.devices.clone(), &whole)?);
        }
        return Ok(found);
    }
    let all = || snapshot.devices.clone();
    let given = given(GRAMMARS, &|name| std::env::var_os(name), &all, &BTreeMap::new);
    // A list that cannot be resolved does not add devices, so using all of them is safe.
    let Some(given) = given.ok().and_then(|given| given.given) else { return Ok(all()) };
    let is_given = |d: &DeviceState| d.id().uuid.as_ref().is_ok_and(|uuid| given.contains(uuid));
    Ok(snapshot.devices.iter().cloned().chain(mig()).filter(is_given).collect())
}

fn show(
    screen: &mut Screen,
    global: &Global,
    args: &EnvArgs,
    (known, snapshot): (&Known, Option<&Snapshot>),
    advice: &Advice,
) -> Result<(), Failure> {
    if !global.quiet {
        if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.origin != Origin::Live) {
            comment(screen, &snapshot.origin.to_string())?;
        }
        let (limit, context) = (amount(args.limit), amount(args.keep.context));
        let head = format!(
            "limit {limit} per GPU, including {context} for the CUDA context and \
            libraries"
        );
        comment(screen, &head)?;
        for used in &known.used {
            comment(screen, &known.described(used))?;
        }
    }
    for variable in &advice.variables {
        let value = shell_word(&variable.value);
        screen.print(&Line::new().plain(format_args!("export {}={value}", variable.name)))?;
    }
    if global.quiet {
        return Ok(());
    }
    for note in &advice.notes {
        comment(screen, note)?;
    }
    for snippet in &advice.code {
        comment(
            screen,
            &format!("for {}, before its first use of a GPU:", snippet.framework.name()),
        )?;
        for line in &snippet.lines {
            screen.print(&Line::new().plain(format_args!("#     {line}")))?;
        }
    }
    Ok(())
}

/// Prints a shell comment, wrapped to the width of a terminal. Every line starts with `#`.
fn comment(screen: &mut Screen, text: &str) -> Result<(), Failure> {
    let mut line = "# ".to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            screen.print(&Line::new().dim(&line))?;
            line = "#   ".to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    screen.print(&Line::new().dim(&line))
}
