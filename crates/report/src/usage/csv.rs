//! The CSV of `gpuws report`, after RFC 4180: a header, lines that end with CR LF, quotes doubled.

use super::{By, Usage};
use gpu_accounting::Amounts;

impl Usage<'_> {
    /// Returns one record for each row, without the totals, which the reader can compute.
    ///
    /// An apostrophe precedes a name that a spreadsheet would treat as a formula, because users
    /// choose the names of programs.
    pub fn csv(&self, by: By) -> String {
        let name = match by {
            By::Job => "job,user",
            by => by.heading(),
        };
        let mut text = format!(
            "{name},held_gpu_hours,used_gpu_hours,idle_gpu_hours,peak_memory_bytes,energy_kwh\r\n"
        );
        for row in self.rows(by) {
            text.push_str(&field(&row.name));
            if by == By::Job {
                text.push_str(&format!(",{}", field(row.user.as_deref().unwrap_or_default())));
            }
            text.push_str(&numbers(&row.amounts));
        }
        if let Some(energy) = self.unattributed(by) {
            let user = if by == By::Job { "," } else { "" };
            let amounts = Amounts { energy, ..Amounts::default() };
            text.push_str(&format!("not attributed{user}{}", numbers(&amounts)));
        }
        text
    }
}

fn numbers(amounts: &Amounts) -> String {
    let [held, used, idle] =
        [amounts.held, amounts.used, amounts.idle].map(|time| time.as_secs_f64() / 3_600.0);
    let (peak, energy) = (amounts.peak.0, amounts.energy.kilowatt_hours());
    format!(",{held:.6},{used:.6},{idle:.6},{peak},{energy:.6}\r\n")
}

fn field(text: &str) -> String {
    let text = gpu_core::clean(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    let text = if is_formula { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn field_is_quoted_and_no_formula() {
        for (text, quoted) in [
            ("alice", "alice"),
            ("a, b", "\"a, b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("-m x", "'-m x"),
            ("a\r\nb", "a\\r\\nb"),
            ("", ""),
        ] {
            assert_eq!(field(text), quoted, "{text:?}");
        }
    }
}
