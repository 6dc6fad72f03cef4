//! The text of a diagnosis in `gpuws doctor`: a block for each finding, with its evidence, its
//! suspects and the advice. Findings that are only possible and equal each other share a block.

use crate::text::{Line, below, flowed};
use crate::wording;
use gpu_core::{DeviceId, Pid, Snapshot};
use gpu_reaper::{Advice, Cleared, Diagnosis, Evidence, Finding, Sign};
use std::collections::BTreeSet;

/// The maximum number of lines about a block's members; the other members are counted.
const SHOWN: usize = 8;

/// The column of the PID.
const PID: usize = 12;

/// A diagnosis to print.
pub struct Findings<'a> {
    /// The last snapshot.
    pub snapshot: &'a Snapshot,
    /// The diagnosis of the snapshots.
    pub diagnosis: &'a Diagnosis,
    /// Leaves the advice out.
    pub quiet: bool,
    /// The option that selects a simulated machine, for suggested commands.
    pub sim: &'a str,
    /// The width of wrapped text.
    pub width: usize,
}

/// Findings that are printed together: one, or several that are only possible, of one kind, and
/// with the same user or the same reason.
type Block<'a> = Vec<&'a Finding>;

impl Findings<'_> {
    /// Returns the blocks, each followed by an empty line, certain findings first; then the
    /// harmless holders that no block has ruled out.
    pub fn lines(&self) -> Vec<Line> {
        let mut advised = BTreeSet::new();
        let mut ruled_out = BTreeSet::new();
        let mut lines = Vec::new();
        for block in self.blocks() {
            lines.push(self.head(&block));
            lines.extend(self.evidence(&block));
            if let [finding] = block[..] {
                for cleared in self.diagnosis.cleared.iter().filter(|one| concerns(finding, one)) {
                    ruled_out.insert(cleared.process);
                    lines.extend(self.cleared("ruled out", cleared));
                }
            }
            lines.extend(self.advice(&block, &mut advised));
            lines.push(Line::new());
        }
        let rest = self.diagnosis.cleared.iter().filter(|one| !ruled_out.contains(&one.process));
        lines.extend(rest.flat_map(|cleared| self.cleared("expected", cleared)));
        lines
    }

    /// Groups the findings into blocks.
    fn blocks(&self) -> Vec<Block<'_>> {
        let (certain, possible): (Vec<_>, Vec<_>) =
            self.diagnosis.findings.iter().partition(|finding| finding.is_confident());
        let mut groups: Vec<Block<'_>> = Vec::new();
        for finding in possible {
            let joins = |group: &&mut Block<'_>| group.iter().any(|one| self.equal(one, finding));
            match groups.iter_mut().find(joins) {
                Some(group) => group.push(finding),
                None => groups.push(vec![finding]),
            }
        }
        certain.into_iter().map(|finding| vec![finding]).chain(groups).collect()
    }

    /// Returns whether two findings have the same kind, and the same user or the same reason.
    fn equal(&self, one: &Finding, other: &Finding) -> bool {
        let users = |finding: &Finding| -> BTreeSet<String> {
            let processes = finding.suspects.iter().map(|suspect| suspect.process.pid);
            processes.map(|pid| self.user(pid)).filter(|user| user != "?").collect()
        };
        one.kind == other.kind
            && (signs(one) == signs(other) || !users(one).is_disjoint(&users(other)))
    }

    fn user(&self, pid: Pid) -> String {
        wording::user(self.snapshot.process(pid)).into_owned()
    }

    /// Formats `IDLE HOLDER  3 processes on GPUs 2, 6, 7 A100-SXM4-80GB   confidence: possible`.
    fn head(&self, block: &Block<'_>) -> Line {
        let Some(first) = block.first() else { return Line::new() };
        let mut devices: Vec<DeviceId> = Vec::new();
        for id in block.iter().flat_map(|finding| &finding.devices) {
            if !devices.iter().any(|known| known.same_device(id)) {
                devices.push(id.clone());
            }
        }
        devices.sort_by_key(|id| id.index);
        let devices = match block[..] {
            [finding] => wording::doctor::subject(self.snapshot, finding),
            _ => wording::devices(self.snapshot, &devices),
        };
        let processes: BTreeSet<Pid> = suspects(block).map(|suspect| suspect.process.pid).collect();
        let about = match (block.len(), processes.len()) {
            (1, _) | (_, 0) => devices,
            (_, count) => {
                format!("{} on {devices}", wording::count(count, "process", "processes"))
            }
        };
        let confidence = format!("confidence: {}", wording::confidence(first.confidence));
        let column = self.width.min(100).saturating_sub(confidence.len());
        let head = Line::new().accent(wording::kind(first.kind).to_uppercase()).plain("  ");
        head.plain(about).plain("  ").padded_to(column).plain(confidence)
    }

    /// Returns the evidence and the suspects. Evidence that all members of a block share comes
    /// first.
    fn evidence(&self, block: &Block<'_>) -> Vec<Line> {
        let flow = |text: &str| flowed(Line::new().plain("  "), text, self.width);
        if let [finding] = block[..] {
            let evidence = finding.evidence.iter().flat_map(|evidence| flow(&evidence.text));
            let held = finding.suspects.iter().flat_map(|suspect| {
                let head = self.who("held by", suspect.process.pid);
                below(head, &Evidence::texts(&suspect.evidence).join("; "), self.width)
            });
            return evidence.chain(held).collect();
        }
        let Some(first) = block.first() else { return Vec::new() };
        let is_common =
            |text: &&str| block.iter().all(|finding| texts(finding).any(|other| other == *text));
        let common: Vec<&str> = texts(first).filter(is_common).collect();
        let mut lines: Vec<Line> = common.iter().flat_map(|text| flow(text)).collect();
        let members = block.iter().flat_map(|finding| self.members(finding, &common));
        let members: Vec<Vec<Line>> = members.collect();
        let more = members.len().saturating_sub(SHOWN);
        lines.extend(members.into_iter().take(SHOWN).flatten());
        if more > 0 {
            let json = format!("gpuws {}doctor --json", self.sim);
            lines.push(Line::new().plain("  ").dim(format!("and {more} more: ")).accent(json));
        }
        lines
    }

    /// Returns the lines for each suspect of a member of a block, or for its devices if it has none.
    fn members(&self, finding: &Finding, common: &[&str]) -> Vec<Vec<Line>> {
        let indexes: Vec<u32> = finding.devices.iter().map(|id| id.index).collect();
        let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
        let devices = format!("{word} {}", wording::ranges(&indexes));
        let own = |text: &&str| !common.contains(text);
        let of_device = finding.evidence.iter().map(|one| one.text.as_str()).filter(own);
        let of_device: Vec<&str> = of_device.collect();
        if finding.suspects.is_empty() {
            let head = Line::new().plain("  ").plain(devices).plain("  ");
            return vec![below(head, &of_device.join("; "), self.width)];
        }
        let member = |suspect: &gpu_reaper::Suspect| {
            let tells = suspect.evidence.iter().any(|one| one.sign == Sign::HoldsMemory);
            let memory = finding.memory.filter(|_| !tells).map(wording::memory);
            let mut parts = vec![devices.clone()];
            parts.extend(memory.map(|memory| memory.into_owned()));
            let evidence = suspect.evidence.iter().map(|one| one.text.as_str()).filter(own);
            parts.extend(of_device.iter().copied().chain(evidence).map(str::to_owned));
            below(self.who("held by", suspect.process.pid), &parts.join("; "), self.width)
        };
        finding.suspects.iter().map(member).collect()
    }

    fn cleared(&self, word: &str, cleared: &Cleared) -> Vec<Line> {
        below(self.who(word, cleared.process.pid), &cleared.why, self.width)
    }

    /// Formats `held by    100562  t2t-decoder  admin   `.
    fn who(&self, word: &str, pid: Pid) -> Line {
        let name = self.snapshot.process(pid).map_or("?", |info| info.name.as_str());
        let line = Line::new().plain("  ").dim(word).padded_to(PID);
        let line = line.plain(format!("{:>7}  ", pid.0)).plain(name).plain("  ").padded_to(36);
        line.plain(self.user(pid)).plain("  ").padded_to(44)
    }

    /// Returns the commands to type next. For a block of several findings, these are the commands
    /// that all of them have: possible findings do not justify ending processes in bulk.
    fn advice(&self, block: &Block<'_>, advised: &mut BTreeSet<String>) -> Vec<Line> {
        let Some(first) = block.first().filter(|_| !self.quiet) else { return Vec::new() };
        let is_shared =
            |advice: &&Advice| block.iter().all(|finding| finding.advice.contains(advice));
        let mut advice: Vec<&Advice> = first.advice.iter().filter(is_shared).collect();
        if advice.is_empty() {
            advice.extend(first.advice.first());
        }
        // Commands on this machine cannot act on the machine of a paste or of a recording.
        let is_elsewhere = !self.snapshot.origin.permits_actions();
        let next = if is_elsewhere { "there" } else { "next" };
        let mut lines = Vec::new();
        for (at, advice) in advice.into_iter().enumerate() {
            let (command, what) = wording::advice(advice, self.sim);
            let head = Line::new().plain("  ").dim(if at == 0 { next } else { "or" }).padded_to(11);
            let head = head.accent(&command).plain("   ");
            if advised.insert(command) {
                lines.extend(below(head, what, self.width))
            } else {
                lines.push(head.plain("as above"))
            }
        }
        lines
    }
}

fn suspects<'a>(block: &Block<'a>) -> impl Iterator<Item = &'a gpu_reaper::Suspect> {
    block.iter().flat_map(|finding| &finding.suspects)
}

/// Returns the evidence of a finding and of its suspects.
fn evidence(finding: &Finding) -> impl Iterator<Item = &Evidence> {
    let of_suspects = finding.suspects.iter().flat_map(|suspect| &suspect.evidence);
    finding.evidence.iter().chain(of_suspects)
}

fn texts(finding: &Finding) -> impl Iterator<Item = &str> {
    evidence(finding).map(|one| one.text.as_str())
}

/// Returns the reason of a finding: the kinds of its observations.
fn signs(finding: &Finding) -> BTreeSet<Sign> {
    evidence(finding).map(|one| one.sign).collect()
}

/// Returns whether a harmless holder could have been a suspect of a finding.
fn concerns(finding: &Finding, cleared: &Cleared) -> bool {
    let shares = |id: &DeviceId| finding.devices.iter().any(|other| other.same_device(id));
    finding.memory.is_some() && cleared.devices.iter().any(shares)
}
