//! `nvidia-smi -q -x`.
//!
//! Events are read one by one, so that everything before a cut or an error counts; a leaf counts
//! once it is closed. The document type is ignored, and only the predefined entities are expanded.

use crate::document::{Document, Kind};
use crate::report::Report;
use crate::text::Text;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// The maximum depth at which sections are distinguished; NVIDIA's documents have eight levels.
const MAX_DEPTH: usize = 64;

/// The maximum number of errors to skip before leaving the rest unread.
const MAX_MISTAKES: usize = 20;

/// Parses the document, or the rest of it.
pub(crate) fn parse(text: &Text) -> Document {
    let source = text.as_str();
    let first_line = text.lines().next().map_or(1, |(number, _)| number);
    let mut tree =
        Tree { report: Report::new(Kind::Xml), path: Vec::new(), deeper: 0, value: None };
    let mut start = 0;
    for mistake in 0..=MAX_MISTAKES {
        let rest = source.get(start..).unwrap_or_default();
        let Some((at, why)) = tree.read(rest) else { break };
        // Continue after the error, at the next tag.
        let after = start + at + 1;
        let next = source.get(after..).and_then(|rest| rest.find('<')).map(|at| after + at);
        let before = source.get(..start + at).unwrap_or_default();
        let line = first_line + before.matches('\n').count();
        let shown = source.get(start + at..).unwrap_or_default().lines().next().unwrap_or_default();
        tree.report.unread(line, shown, why);
        match next {
            Some(next) if mistake < MAX_MISTAKES => start = next,
            _ => break,
        }
    }
    tree.report.finish()
}

struct Tree {
    report: Report,
    /// The open elements.
    path: Vec<String>,
    /// The number of open elements beyond [`MAX_DEPTH`].
    deeper: usize,
    /// The text of the innermost element as long as it has no child.
    value: Option<String>,
}

impl Tree {
    /// Parses to the end, or up to an error; returns the position and reason of the error.
    fn read(&mut self, source: &str) -> Option<(usize, &'static str)> {
        let mut reader = Reader::from_str(source);
        let config = reader.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        config.allow_dangling_amp = true;
        config.expand_empty_elements = true;
        loop {
            match reader.read_event() {
                Ok(Event::Start(element)) => self.open(&element),
                Ok(Event::End(element)) => self.close(element.name().0),
                Ok(Event::Text(text)) => self.add(&text),
                Ok(Event::CData(text)) => self.add(&text),
                Ok(Event::GeneralRef(reference)) => self.add_reference(&reference),
                Ok(Event::Eof) => return None,
                Ok(_) => {}
                Err(_) => {
                    let at = usize::try_from(reader.error_position()).unwrap_or(source.len());
                    return Some((at.min(source.len()), "malformed or truncated XML"));
                }
            }
        }
    }

    fn open(&mut self, element: &BytesStart<'_>) {
        let name = element.name().0;
        if self.path.len() >= MAX_DEPTH {
            self.deeper = self.deeper.saturating_add(1);
            self.value = None;
            return;
        }
        if name == "gpu" {
            let id = element.try_get_attribute("id").ok().flatten();
            self.report.device(id.as_ref().map_or("", |id| id.value.trim()));
        } else {
            self.report.section(name);
        }
        self.path.push(name.to_owned());
        self.value = Some(String::new());
    }

    /// Closes the element of that name, and any unclosed elements inside it.
    fn close(&mut self, name: &str) {
        if self.deeper > 0 {
            self.deeper -= 1;
            return;
        }
        let Some(depth) = self.path.iter().rposition(|open| open == name) else { return };
        let value = self.value.take().filter(|_| depth + 1 == self.path.len());
        self.path.truncate(depth);
        if let Some(value) = value {
            // No value contains a line break; a terminal inserted this one.
            self.report.leaf(&self.path, name, &value.trim().replace(['\n', '\r'], ""));
        }
    }

    fn add(&mut self, text: &str) {
        if let Some(value) = &mut self.value {
            value.push_str(text);
        }
    }

    /// Adds the character of `&lt;` or `&#60;`; an unknown entity is kept unchanged.
    fn add_reference(&mut self, reference: &BytesRef<'_>) {
        let resolved = quick_xml::escape::resolve_predefined_entity(reference);
        match (resolved, reference.resolve_char_ref()) {
            (Some(text), _) => self.add(text),
            (None, Ok(Some(c))) if !c.is_control() => self.add(c.encode_utf8(&mut [0; 4])),
            (None, Ok(Some(_))) => {}
            (None, _) => self.add(&format!("&{};", &**reference)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use gpu_core::Absent;

    fn read(text: &str) -> Document {
        parse(&clean(text.as_bytes()))
    }

    const XML: &str = r#"<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
	<driver_version>590.1.2</driver_version>
	<cuda_version>13.1</cuda_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:0A:00.0">
		<product_name>Example 9000</product_name>
		<display_active>Disabled</display_active>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
		<mig_devices>
			<mig_device>
				<index>2</index>
				<gpu_instance_id>3</gpu_instance_id>
				<compute_instance_id>1</compute_instance_id>
				<fb_memory_usage><total>9728 MiB</total><used>13 MiB</used></fb_memory_usage>
				<bar1_memory_usage><total>16383 MiB</total></bar1_memory_usage>
			</mig_device>
		</mig_devices>
		<uuid>GPU-0000</uuid>
		<minor_number>4</minor_number>
		<pci><pci_bus_id>00000000:0A:00.0</pci_bus_id></pci>
		<fb_memory_usage>
			<total>40000 MiB</total><reserved>600 MiB</reserved><used>2000 MiB</used>
		</fb_memory_usage>
		<utilization><gpu_util>37 %</gpu_util><memory_util>1 %</memory_util></utilization>
		<temperature><gpu_temp>36 C</gpu_temp></temperature>
		<gpu_power_readings>
			<average_power_draw>60.50 W</average_power_draw>
			<instant_power_draw>70.00 W</instant_power_draw>
			<current_power_limit>250.00 W</current_power_limit>
		</gpu_power_readings>
		<module_power_readings><average_power_draw>9 W</average_power_draw></module_power_readings>
		<processes>
			<process_info>
				<gpu_instance_id>3</gpu_instance_id>
				<compute_instance_id>1</compute_instance_id>
				<pid>4711</pid>
				<type>C</type>
				<process_name>/a b/&lt;c&gt; &amp; &#100; &nope; e</process_name>
				<used_memory>N/A</used_memory>
			</process_info>
			<process_info><pid>4712</pid><process_name></process_name></process_info>
		</processes>
		<accounted_processes><pid>1</pid></accounted_processes>
	</gpu>
	<gpu id="00000000:0B:00.0">
		<fb_memory_usage><total>GPU is lost</total><used>GPU is lost</used></fb_memory_usage>
		<processes>
		</processes>
	</gpu>
</nvidia_smi_log>
"#;

    #[test]
    fn full_device_is_parsed() {
        let document = read(XML);
        assert_eq!(document.driver_version.as_deref(), Some("590.1.2"));
        assert_eq!(document.cuda_version.as_deref(), Some("13.1"));
        assert_eq!(document.gpus.len(), 2);
        assert_eq!(document.unread, []);
        let gpu = &document.gpus[0];
        assert_eq!((gpu.index, gpu.minor), (Some(0), Some(4)));
        assert_eq!(gpu.bus_id.as_deref(), Some("00000000:0A:00.0"));
        assert_eq!(
            (gpu.name.as_deref(), gpu.uuid.as_deref()),
            (Some("Example 9000"), Some("GPU-0000"))
        );
        assert_eq!((gpu.memory_used_mib, gpu.memory_total_mib), (Ok(2000), Ok(40_000)));
        assert_eq!(gpu.memory_reserved_mib, Ok(600));
        assert_eq!((gpu.utilization_percent, gpu.temperature_c), (Ok(37), Ok(36)));
        assert_eq!((gpu.power_draw_w, gpu.power_limit_w), (Ok(60.5), Ok(250.0)));
        assert_eq!((gpu.persistence, gpu.display_active), (Ok(true), Ok(false)));
        assert_eq!(gpu.mig_enabled, Ok(true));
        assert_eq!(document.gpus[1].memory_used_mib, Err(Absent::DeviceLost));
        let [mig] = document.mig_devices.as_slice() else { panic!("one MIG device") };
        assert_eq!((mig.mig_index, mig.compute_instance_id), (Some(2), Some(1)));
        assert_eq!((mig.memory_used_mib, mig.memory_total_mib), (Ok(13), Ok(9728)));
    }

    #[test]
    fn hostile_process_names_are_parsed() {
        let processes = read(XML).processes.unwrap();
        let [first, second] = processes.as_slice() else { panic!("{processes:?}") };
        assert_eq!(first.name.as_deref(), Some("/a b/<c> & d &nope; e"));
        assert_eq!((first.pid, first.gpu_index), (Some(4711), Some(0)));
        assert_eq!((first.gpu_instance_id, first.compute_instance_id), (Some(3), Some(1)));
        assert_eq!(first.memory_mib, Err(Absent::NotSupported));
        assert_eq!((second.pid, second.name.as_ref()), (Some(4712), None));
        assert_eq!((second.gpu_instance_id, second.memory_mib), (None, Err(Absent::NotRecorded)));
    }

    #[test]
    fn empty_and_missing_process_lists_differ() {
        let xml = |processes: &str| read(&format!("<gpu id='0:1'>{processes}</gpu>")).processes;
        assert_eq!(xml("<processes> </processes>"), Some(Vec::new()));
        assert_eq!(xml("<processes/>"), Some(Vec::new()));
        assert_eq!(xml("<processes>N/A</processes>"), None);
        assert_eq!(xml(""), None);
        assert_eq!(xml("<processes>"), None);
    }

    #[test]
    fn truncation_loses_only_the_rest() {
        let whole = read(XML);
        for end in (0..XML.len()).filter(|end| XML.is_char_boundary(*end)) {
            let cut = read(&XML[..end]);
            for (gpu, all) in cut.gpus.iter().zip(&whole.gpus) {
                assert!(gpu.memory_used_mib.is_err() || gpu.memory_used_mib == all.memory_used_mib);
                assert!(gpu.name.is_none() || gpu.name == all.name);
            }
            assert!(cut.gpus.len() <= 2);
        }
    }

    #[test]
    fn malformed_elements_are_skipped() {
        let broken = XML.replace("<display_active>", "<display_active <<>");
        let document = read(&broken);
        assert_eq!(document.gpus.len(), 2);
        assert_eq!(document.gpus[0].memory_used_mib, Ok(2000));
        let unclosed = XML.replace("</product_name>", "");
        assert_eq!(read(&unclosed).gpus[0].memory_used_mib, Ok(2000));
        let deep = "<a>".repeat(200) + "</a>" + XML;
        assert_eq!(read(&deep).gpus.len(), 0, "too deep to be distinguished");
        assert!(read(&"<\"".repeat(5000)).unread.len() <= MAX_MISTAKES + 1);
    }

    #[test]
    fn references_and_character_data_are_text() {
        for (text, want) in [
            ("a &lt;b&gt; &quot;&apos;&amp;", "a <b> \"'&"),
            ("<![CDATA[a <b>]]>", "a <b>"),
            ("&#65;&#x42;&#10;&#1;c", "ABc"),
            ("&other;", "&other;"),
            ("a\n  b", "a  b"),
            ("a &b", "a &b"),
        ] {
            let xml = format!("<gpu><product_name>{text}</product_name></gpu>");
            assert_eq!(read(&xml).gpus[0].name.as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn mistakes_are_unread_with_their_line() {
        let document =
            read("<gpu>\n<product_name>A</product_name>\n<!x>\n<uuid>GPU-a</uuid>\n</gpu>\n");
        let unread: Vec<_> = document.unread.iter().map(|u| (u.line, u.text.as_str())).collect();
        assert_eq!(unread, [(3, "<!x>")]);
        let gpu = &document.gpus[0];
        assert_eq!((gpu.name.as_deref(), gpu.uuid.as_deref()), (Some("A"), Some("GPU-a")));
    }

    #[test]
    fn element_that_is_closed_out_of_order_has_no_value() {
        let gpu =
            read("<gpu><product_name>A<uuid>GPU-a</product_name></uuid></gpu>").gpus.remove(0);
        assert_eq!((gpu.name, gpu.uuid), (None, None));
        let nested = |depth: usize| {
            let (open, close) = ("<a>".repeat(depth), "</a>".repeat(depth));
            read(&format!("{open}<x>{close}<gpu><product_name>A</product_name></gpu>")).gpus.len()
        };
        assert_eq!(nested(MAX_DEPTH + 9), 1, "deeper elements are closed again");
        let at = |depth: usize| {
            let open = "<a>".repeat(depth);
            let document = read(&format!("{open}<gpu><product_name>A</product_name></gpu>"));
            document.gpus.first().map(|gpu| gpu.name.is_some())
        };
        assert_eq!(
            (at(MAX_DEPTH - 2), at(MAX_DEPTH - 1), at(MAX_DEPTH)),
            (Some(true), Some(false), None)
        );
    }
}
