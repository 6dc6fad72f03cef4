//! Random machines, printed in the formats of nvidia-smi across driver versions.

use proptest::prelude::*;
use std::fmt::Write as _;

/// A random machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cards: Vec<Card>,
    pub(crate) processes: Vec<Process>,
}

#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) bus: u8,
    pub(crate) persistence: bool,
    pub(crate) display: Option<bool>,
    pub(crate) memory: Option<(u32, u32)>,
    pub(crate) utilization: Option<u8>,
    pub(crate) temperature: Option<u8>,
    pub(crate) draw: Option<u16>,
    pub(crate) limit: Option<u16>,
    pub(crate) mig: Option<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) card: usize,
    pub(crate) pid: u32,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) memory: Option<u32>,
}

/// The formats of the table, by driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Driver 304: megabytes with a percentage, no persistence mode, no types.
    Old,
    /// Driver 375: types, no CUDA version.
    Typed,
    /// Driver 470: MIG rows and columns.
    Narrow,
    /// Driver 550: wide columns.
    Wide,
}

impl Card {
    pub(crate) fn bus_id(&self, form: Form) -> String {
        match form {
            Form::Old | Form::Typed => format!("0000:{:02X}:00.0", self.bus),
            Form::Narrow | Form::Wide => format!("00000000:{:02X}:00.0", self.bus),
        }
    }
}

pub(crate) fn machine() -> impl Strategy<Value = Machine> {
    prop::collection::vec(card(), 1..13).prop_flat_map(|cards| {
        let processes = prop::collection::vec(process(cards.len()), 0..6);
        (Just(cards), processes).prop_map(|(cards, mut processes)| {
            processes.sort_by_key(|process| process.card);
            Machine { cards, processes }
        })
    })
}

fn card() -> impl Strategy<Value = Card> {
    let state = (any::<bool>(), any::<Option<bool>>(), any::<Option<bool>>());
    let memory = prop::option::of((0u32..150_000, 1u32..300_000));
    let load = (prop::option::of(0u8..=100), prop::option::of(0u8..=110));
    let power = (prop::option::of(0u16..1500), prop::option::of(10u16..1500));
    let name = "[A-Z][a-z]{2,5}( [A-Z]?[0-9]{2,4}){1,2}";
    (name, any::<u8>(), state, memory, load, power).prop_map(
        |(name, bus, state, memory, load, power)| Card {
            name,
            bus,
            persistence: state.0,
            display: state.1,
            memory,
            utilization: load.0,
            temperature: load.1,
            draw: power.0,
            limit: power.1,
            mig: state.2,
        },
    )
}

fn process(cards: usize) -> impl Strategy<Value = Process> {
    let kind = prop::sample::select(vec!["C", "G", "C+G", "M+C"]);
    let name = prop_oneof![
        "(\\.\\.\\.)?[a-z/][a-zé0-9/_.|+-]{0,12}( [a-z|(][a-z0-9)]{0,4})?[a-z]",
        Just("[Not Found]".to_owned()),
        Just("Insufficient Permissions".to_owned()),
    ];
    (0..cards, 1u32..4_194_304, kind, name, prop::option::of(0u32..150_000))
        .prop_map(|(card, pid, kind, name, memory)| Process { card, pid, kind, name, memory })
}

fn or_none<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or("N/A".to_owned(), show)
}

fn on(value: bool) -> &'static str {
    if value { "On" } else { "Off" }
}

/// Prints the table.
pub(crate) fn table(machine: &Machine, form: Form) -> String {
    let (first, second, third) = match form {
        Form::Wide => (41, 24, 22),
        _ => (31, 22, 22),
    };
    let width = first + second + third + 2;
    let rule = |edge: &str, fill: &str, cross: &str| {
        let cell = |width: usize| fill.repeat(width);
        format!("{edge}{}{cross}{}{cross}{}{edge}\n", cell(first), cell(second), cell(third))
    };
    let line = |text: &str| format!("|{text:<width$}|\n");
    let row = |cells: [&str; 3]| {
        format!("|{:<first$}|{:<second$}|{:>third$}|\n", cells[0], cells[1], cells[2])
    };
    let single = rule("+", "-", "+");
    let closed = format!("+{}+\n", "-".repeat(width));
    let mut out = String::from("Mon Jan  1 00:00:00 2024\n");
    out.push_str(&closed);
    out.push_str(&line(match form {
        Form::Old => " NVIDIA-SMI 4.304.1   Driver Version: 304.1",
        Form::Typed => " NVIDIA-SMI 375.1    Driver Version: 375.1",
        Form::Narrow => " NVIDIA-SMI 470.1    Driver Version: 470.1    CUDA Version: 11.4",
        Form::Wide => " NVIDIA-SMI 550.1    Driver Version: 550.1    CUDA Version: 12.4",
    }));
    out.push_str(&rule("|", "-", "+"));
    out.push_str(&row([" GPU  Name", " Bus-Id        Disp.A", " Volatile Uncorr. ECC "]));
    out.push_str(&row([
        " Fan  Temp  Perf  Pwr:Usage/Cap",
        "         Memory-Usage ",
        " GPU-Util  Compute M. ",
    ]));
    out.push_str(&rule("|", "=", "+"));
    for (index, card) in machine.cards.iter().enumerate() {
        let name = match form {
            Form::Old => format!(" {index:>3}  {}", card.name),
            _ => format!(
                " {index:>3}  {:<w$} {:>3}  ",
                card.name,
                on(card.persistence),
                w = first - 13
            ),
        };
        let display = or_none(card.display, |display| on(display).to_owned());
        out.push_str(&row([&name, &format!(" {} {display:>3} ", card.bus_id(form)), "0 "]));
        let state = format!(
            " N/A  {:>4}  P0  {:>5} / {:>5} ",
            or_none(card.temperature, |t| format!("{t}C")),
            or_none(card.draw, |w| format!("{w}W")),
            or_none(card.limit, |w| format!("{w}W")),
        );
        let memory = match (card.memory, form) {
            (None, _) => " Not Supported".to_owned(),
            (Some((used, total)), Form::Old) => format!("  7% {used:>5}MB / {total:>5}MB "),
            (Some((used, total)), _) => format!("{used:>7}MiB /{total:>7}MiB "),
        };
        let load = or_none(card.utilization, |percent| format!("{percent}%"));
        out.push_str(&row([&state, &memory, &format!("{load:>8}      Default ")]));
        if matches!(form, Form::Narrow | Form::Wide) {
            let mig = card.mig.map_or("N/A", |mig| if mig { "Enabled" } else { "Disabled" });
            out.push_str(&row(["", "", &format!("{mig} ")]));
        }
        out.push_str(&single);
    }
    let _ = write!(out, "{:width$}\n{closed}", "");
    out.push_str(&line(" Processes:                                          GPU Memory"));
    out.push_str(&line(match form {
        Form::Old => "  GPU       PID  Process name                        Usage",
        Form::Typed => "  GPU       PID  Type  Process name                  Usage",
        Form::Narrow | Form::Wide => "  GPU   GI   CI        PID   Type   Process name      Usage",
    }));
    out.push_str(&format!("|{}|\n", "=".repeat(width)));
    if machine.processes.is_empty() {
        out.push_str(&line("  No running processes found"));
    }
    for Process { card, pid, kind, name, memory } in &machine.processes {
        let left = match form {
            Form::Old => format!("  {card:>3}  {pid:>8}  {name}"),
            Form::Typed => format!("  {card:>3}  {pid:>8}  {kind:>3}   {name}"),
            Form::Narrow | Form::Wide => {
                format!("  {card:>3}   N/A  N/A  {pid:>8}    {kind:>3}   {name}")
            }
        };
        let memory = or_none(*memory, |mib| format!("{mib}MiB"));
        let gap = width - left.chars().count() - 1;
        out.push_str(&format!("|{left}{memory:>gap$} |\n"));
    }
    out.push_str(&closed);
    out
}

/// Prints `nvidia-smi -q`.
pub(crate) fn log(machine: &Machine) -> String {
    let leaf = |indent: usize, key: &str, value: &str| {
        let key = format!("{:indent$}{key}", "");
        format!("{key:<40}: {value}\n")
    };
    let head = |indent: usize, name: &str| format!("{:indent$}{name}\n", "");
    let mut out = String::from("\n==============NVSMI LOG==============\n\n");
    out += &leaf(0, "Driver Version", "550.1");
    out += &leaf(0, "CUDA Version", "12.4");
    out += "\n";
    out += &leaf(0, "Attached GPUs", &machine.cards.len().to_string());
    for (index, card) in machine.cards.iter().enumerate() {
        out += &head(0, &format!("GPU {}", card.bus_id(Form::Wide)));
        out += &leaf(4, "Product Name", &card.name);
        out += &leaf(4, "Persistence Mode", if card.persistence { "Enabled" } else { "Disabled" });
        out += &leaf(4, "Minor Number", &index.to_string());
        out += &head(4, "BAR1 Memory Usage");
        out += &leaf(8, "Total", "256 MiB");
        out += &head(4, "FB Memory Usage");
        let (used, total) = card.memory.unzip();
        out += &leaf(8, "Total", &or_none(total, |mib| format!("{mib} MiB")));
        out += &leaf(8, "Used", &or_none(used, |mib| format!("{mib} MiB")));
        out += &head(4, "Utilization");
        out += &leaf(8, "Gpu", &or_none(card.utilization, |percent| format!("{percent} %")));
        out += &head(4, "Temperature");
        out += &leaf(8, "GPU Current Temp", &or_none(card.temperature, |t| format!("{t} C")));
        out += &head(4, "GPU Power Readings");
        out += &leaf(8, "Power Draw", &or_none(card.draw, |w| format!("{w}.00 W")));
        out += &leaf(8, "Current Power Limit", &or_none(card.limit, |w| format!("{w}.00 W")));
        let mut processes = machine.processes.iter().filter(|p| p.card == index).peekable();
        if processes.peek().is_none() {
            out += &leaf(4, "Processes", "None");
        } else {
            out += &head(4, "Processes");
        }
        for process in processes {
            out += &leaf(8, "GPU instance ID", "N/A");
            out += &leaf(8, "Compute instance ID", "N/A");
            out += &leaf(8, "Process ID", &process.pid.to_string());
            out += &leaf(12, "Type", process.kind);
            out += &leaf(12, "Name", &process.name);
            out +=
                &leaf(12, "Used GPU Memory", &or_none(process.memory, |mib| format!("{mib} MiB")));
        }
        out += "\n";
    }
    out
}

/// Prints `nvidia-smi -q -x`.
pub(crate) fn xml(machine: &Machine) -> String {
    let text = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut out = String::from(
        "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n\
         <nvidia_smi_log>\n<driver_version>550.1</driver_version>\n\
         <cuda_version>12.4</cuda_version>\n",
    );
    for (index, card) in machine.cards.iter().enumerate() {
        let (used, total) = card.memory.unzip();
        let _ = write!(
            out,
            "\t<gpu id=\"{}\">\n\t\t<product_name>{}</product_name>\n\
             \t\t<persistence_mode>{}</persistence_mode>\n\
             \t\t<minor_number>{index}</minor_number>\n\
             \t\t<bar1_memory_usage><total>256 MiB</total></bar1_memory_usage>\n\
             \t\t<fb_memory_usage>\n\t\t\t<total>{}</total>\n\t\t\t<used>{}</used>\n\
             \t\t</fb_memory_usage>\n\
             \t\t<utilization><gpu_util>{}</gpu_util></utilization>\n\
             \t\t<temperature><gpu_temp>{}</gpu_temp></temperature>\n\
             \t\t<gpu_power_readings>\n\t\t\t<power_draw>{}</power_draw>\n\
             \t\t\t<current_power_limit>{}</current_power_limit>\n\t\t</gpu_power_readings>\n\
             \t\t<processes>\n",
            card.bus_id(Form::Wide),
            text(&card.name),
            if card.persistence { "Enabled" } else { "Disabled" },
            or_none(total, |mib| format!("{mib} MiB")),
            or_none(used, |mib| format!("{mib} MiB")),
            or_none(card.utilization, |percent| format!("{percent} %")),
            or_none(card.temperature, |t| format!("{t} C")),
            or_none(card.draw, |w| format!("{w}.00 W")),
            or_none(card.limit, |w| format!("{w}.00 W")),
        );
        for process in machine.processes.iter().filter(|process| process.card == index) {
            let _ = write!(
                out,
                "\t\t\t<process_info>\n\t\t\t\t<pid>{}</pid>\n\t\t\t\t<type>{}</type>\n\
                 \t\t\t\t<process_name>{}</process_name>\n\
                 \t\t\t\t<used_memory>{}</used_memory>\n\t\t\t</process_info>\n",
                process.pid,
                process.kind,
                text(&process.name),
                or_none(process.memory, |mib| format!("{mib} MiB")),
            );
        }
        out += "\t\t</processes>\n\t</gpu>\n";
    }
    out += "</nvidia_smi_log>\n";
    out
}
