//! Random graphs in the notation of the fixture.

use super::fixture::OPS;

/// A generator of numbers (SplitMix64), so that a seed gives the same graphs everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A graph and its placement options.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) lines: Vec<String>,
    /// How many devices of each fake type there are.
    pub(crate) devices: usize,
    pub(crate) default_device: Option<String>,
    pub(crate) soft: bool,
}

/// Operations and functions that a random graph may call, with types of arguments and results.
const OTHERS: &[(&str, &str, &str)] = &[
    ("Identity<f>", "f", "f"),
    ("Identity<res>", "res", "res"),
    ("Shape<f>", "f", ""),
    ("_Arg<f>", "", "f"),
    ("_Arg<res>", "", "res"),
    ("_Retval<f>", "f", ""),
    ("_Retval<res>", "res", ""),
    ("Add<f>", "f f", "f"),
];

const CALLS: &[(&str, &str, &str)] = &[
    ("call:PassResource", "f res", "res f"),
    ("call:Swap<res>", "res res", "res res"),
    ("call:Swap<f>", "f f", "f f"),
    ("call:Same", "res", "res"),
    ("call:MakeC", "f", "res f"),
    ("call:CallMakeC", "f", "res f"),
];

/// The frequency of features in a random graph, in per cent of its nodes.
#[derive(Clone, Copy, Debug)]
struct Rates {
    requested: u64,
    assigned: u64,
    colocated: u64,
    called: u64,
}

fn request(random: &mut Random, devices: usize) -> String {
    let index = random.below(devices + 1);
    match random.below(20) {
        0 => "/job:a".into(),
        1 => "/job:a/replica:0/task:0".into(),
        2 => "/job:a/replica:0/task:0+G0".into(),
        3 => "/device:FakeCPU:*".into(),
        4 | 5 => "/device:FakeGPU:*".into(),
        6 => format!("/job:a/task:0+G{index}"),
        7 if random.percent(30) => "/job:zz".into(),
        8 if random.percent(30) => "/task:1+C0".into(),
        9 => "X0".into(),
        10..15 => format!("C{index}"),
        _ => format!("G{index}"),
    }
}

/// Returns a random graph of a seed.
pub(crate) fn scenario(seed: u64) -> Scenario {
    let mut random = Random(seed);
    let devices = *random.pick(&[1, 2, 4, 12]);
    let count = 2 + random.below(22);
    let mut rates = Rates { requested: 25, assigned: 0, colocated: 15, called: 0 };
    match random.below(6) {
        0 => rates = Rates { requested: 0, colocated: 0, ..rates },
        1 => rates.assigned = 15,
        2 => rates.requested = 60,
        3 => rates.colocated = 50,
        4 => rates.called = 15,
        _ => {}
    }
    let mut lines: Vec<String> = Vec::new();
    let mut floats: Vec<String> = Vec::new();
    let mut references: Vec<String> = Vec::new();
    let mut resources: Vec<String> = Vec::new();
    while lines.len() < count {
        let (op, inputs, outputs) = if random.percent(rates.called) {
            *random.pick(CALLS)
        } else if random.percent(30) {
            *random.pick(OTHERS)
        } else {
            let (op, inputs, outputs, _) = random.pick(OPS);
            (*op, *inputs, *outputs)
        };
        if op == "VarNone" && !random.percent(10) {
            continue;
        }
        let mut given = Vec::new();
        for of in inputs.split_whitespace() {
            let from = match of {
                "ref" => &references,
                "res" => &resources,
                _ if random.percent(15) && !references.is_empty() => &references,
                _ => &floats,
            };
            if !from.is_empty() {
                given.push(random.pick(from).clone());
            }
        }
        if given.len() < inputs.split_whitespace().count() {
            continue;
        }
        let name = format!("n{}", lines.len());
        let mut line = format!("{name} = {op}");
        for input in given {
            line += &format!(" {input}");
        }
        if !lines.is_empty() && random.percent(15) {
            line += &format!(" ^n{}", random.below(lines.len()));
        }
        if random.percent(rates.requested) {
            line += &format!(" @{}", request(&mut random, devices));
        }
        if random.percent(rates.assigned) {
            line += &format!(" !{}{}", random.pick(&["C", "G"]), random.below(devices));
        }
        while random.percent(rates.colocated) {
            let group = match random.percent(15) {
                true => "group".into(),
                false => format!("n{}", random.below(count)),
            };
            line += &format!(" ~{group}");
        }
        for (at, of) in outputs.split_whitespace().enumerate() {
            let value = if at == 0 { name.clone() } else { format!("{name}:{at}") };
            match of {
                "ref" => references.push(value),
                "res" => resources.push(value),
                _ => floats.push(value),
            }
        }
        lines.push(line);
    }
    if random.percent(50) {
        for at in (1..lines.len()).rev() {
            let other = random.below(at + 1);
            lines.swap(at, other);
        }
    }
    let default = format!("/job:a/replica:0/task:0/device:FakeCPU:{}", random.below(devices));
    let default_device = random.percent(15).then_some(default);
    Scenario { lines, devices, default_device, soft: random.percent(60) }
}
