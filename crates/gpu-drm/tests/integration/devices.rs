//! The cards of real machines.

use crate::machines::{Noting, check_files, data, machine, truth};
use gpu_core::{Absent, Bytes, PciBusId, Percent, Reading};
use gpu_drm::{
    Card, DPM_CLOCKS, Level, Link, Quantity, Sensors, cards, current_clock, gts, levels,
    partition_nodes, product_names, sensors, values,
};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Every value of every card is the expected one; a missing one is null.
#[test]
fn cards_of_real_machines_have_the_right_values() {
    let Some(data) = data() else { return };
    for want in truth(&data, "device") {
        let label = format!("{} {}", want["machine"], want["card"]);
        let root = machine(&data, want["machine"].as_str().unwrap());
        let tree = Noting::new(root.path());
        let found = cards(&tree).unwrap();
        let names = product_names(&tree, &tree, &found);
        let number = |card: &Card| Some(format!("card{}", card.card?));
        let index = found.iter().position(|card| number(card).as_deref() == want["card"].as_str());
        let (card, name) = index.map(|index| (&found[index], &names[index])).expect(&label);

        let sensors = sensors(&tree, card).unwrap_or_default();
        let mut ours = described(&tree, card, name);
        ours.insert("dpm".into(), dpm(&tree, card));
        for (key, value) in &ours {
            assert_eq!(*value, expected(&want, key), "{label} {key}");
        }
        check_sensors(&sensors, &want["hwmon"][0], &label);
        check_gts(&tree, card, &want, &label);
        check_chosen(&tree, card, &sensors, &want["lact"], &label);
        check_files(&tree.take());
    }
}

/// Returns the expected value in the form of ours.
fn expected(want: &Value, key: &str) -> Value {
    match key {
        // An address has several spellings.
        "pci" => json!(want[key].as_str().unwrap().parse::<PciBusId>().unwrap().to_string()),
        // −1 is none.
        "numa_node" if want[key] == -1 => Value::Null,
        // The files of Intel's cards describe the link to their bridge.
        "link" if want["vendor"] == "0x8086" => json!({}),
        _ => want[key].clone(),
    }
}

fn described(tree: &Noting, card: &Card, name: &Reading<String>) -> Object {
    let values = values(tree, card);
    let ((vendor, device), subsystem) = (card.ids.device.unwrap(), card.ids.subsystem.unwrap());
    let bytes = |amount: Reading<Bytes>| amount.ok().map(|Bytes(count)| count);
    let percent = |share: Reading<Percent>| share.ok().map(Percent::get);
    let mut link = Map::new();
    for (prefix, part) in [("", values.link), ("max_", values.max_link)] {
        part.map(|part| {
            link.insert(format!("{prefix}speed"), json!(format!("{} GT/s PCIe", speed(part))));
            link.insert(format!("{prefix}width"), json!(part.lanes.to_string()))
        })
        .ok();
    }
    let described = json!({
        "render": card.render.map(|number| format!("renderD{number}")),
        "pci": card.bus.to_string(),
        "driver": card.driver.name(),
        "vendor": format!("{vendor:#06x}"),
        "device": format!("{device:#06x}"),
        "subsystem": format!("{:04x}:{:04x}", subsystem.0, subsystem.1),
        "revision": card.ids.revision.ok().map(|revision| format!("{revision:#04x}")),
        "class": card.ids.class.ok().map(|class| format!("{class:#08x}")),
        "name": name.as_ref().ok(),
        "vram_total": bytes(values.vram.total),
        "vram_used": bytes(values.vram.used),
        "vis_vram_total": bytes(values.visible_vram.total),
        "vis_vram_used": bytes(values.visible_vram.used),
        "gtt_total": bytes(values.gtt.total),
        "gtt_used": bytes(values.gtt.used),
        "vram_vendor": values.vram_vendor.ok(),
        "busy_percent": percent(values.busy),
        "mem_busy_percent": percent(values.memory_busy),
        "vcn_busy_percent": percent(values.vcn_busy),
        "unique_id": values.unique_id.ok().map(|id| format!("{id:016x}")),
        "serial_number": values.serial.ok(),
        "vbios": values.vbios.ok(),
        "perf_level": values.performance_level.ok(),
        "power_state": values.power_state.ok(),
        "runtime_status": values.runtime_status.ok(),
        "pcie_replay_count": values.replays.ok(),
        "numa_node": values.numa_node.ok(),
        "link": link,
    });
    described.as_object().unwrap().clone()
}

fn speed(link: Link) -> String {
    format!("{:.1}", f64::from(link.megatransfers) / 1000.0)
}

fn dpm(tree: &Noting, card: &Card) -> Value {
    let shown = |level: &Level| match (level.link, level.number) {
        (Ok(link), _) => json!([speed(link) + "GT/s", link.lanes, level.mhz.ok()]),
        (_, Some(number)) => json!([number.to_string(), level.mhz.unwrap()]),
        (_, None) => json!(["S", level.mhz.unwrap()]),
    };
    let clocks = DPM_CLOCKS.into_iter().filter_map(|clock| {
        let levels = levels(tree, card, clock).ok()?;
        let starred: Vec<_> = (0..levels.len()).filter(|index| levels[*index].is_current).collect();
        let levels: Vec<_> = levels.iter().map(shown).collect();
        Some((clock.to_owned(), json!({"levels": levels, "starred": starred})))
    });
    Value::Object(clocks.collect())
}

/// Every value of a sensor is the expected one, and no expected one is missing.
fn check_sensors(sensors: &Sensors, want: &Value, label: &str) {
    let mut count = 0;
    for sensor in &sensors.0 {
        let (group, kind) = match sensor.quantity {
            Quantity::Temperature => ("temps_mc", "temp"),
            Quantity::Power => ("power_uw", "power"),
            Quantity::Energy => ("energy_uj", "energy"),
            Quantity::Fan => ("fans_rpm", "fan"),
            Quantity::Voltage => ("mv", "in"),
            Quantity::Frequency => ("hz", "freq"),
            Quantity::Pwm => {
                // Only the first is among the expected values.
                if let Some(want) = want.get(format!("pwm{}", sensor.channel)) {
                    assert_eq!(sensor.value("input").ok(), want.as_i64(), "{label}");
                }
                continue;
            }
        };
        let channel = format!("{kind}{}", sensor.channel);
        let name = sensor.label.as_deref().filter(|_| kind != "power").unwrap_or(&channel);
        let place = &want[group][name];
        for (attribute, value) in sensor.values.iter().filter(|(_, value)| value.is_ok()) {
            let want = place.get(attribute).unwrap_or(place).as_i64();
            assert_eq!(value.ok(), want, "{label} {group} {name} {attribute}");
            count += 1;
        }
        let is_labelled = kind != "power" || place["label"] == json!(sensor.label);
        assert!(is_labelled, "{label} {name}: {:?}", sensor.label);
    }
    let groups =
        want.as_object().into_iter().flat_map(|chip| chip.values()).filter_map(Value::as_object);
    let numbers = groups.flat_map(|group| group.values()).map(|value| match value.as_object() {
        Some(values) => values.values().filter(|value| value.is_number()).count(),
        None => 1,
    });
    assert_eq!(count, numbers.sum::<usize>(), "{label}");
}

fn check_gts(tree: &Noting, card: &Card, want: &Value, label: &str) {
    let want = want["gts"].as_array().map_or(&[][..], Vec::as_slice);
    let found = gts(tree, card).unwrap_or_default();
    assert_eq!(found.len(), want.len(), "{label}");
    for (gt, want) in found.iter().zip(want.iter().map(|want| want.as_object().unwrap())) {
        let known = gt.frequencies.iter().filter_map(|(name, mhz)| Some((*name, mhz.ok()?)));
        let mut ours: Object =
            known.map(|(n, mhz)| (n.to_lowercase() + "_mhz", json!(mhz))).collect();
        ours.insert("gt".into(), json!(gt.gt));
        ours.insert("throttle_status".into(), json!(u8::from(gt.throttle != Ok(Vec::new()))));
        let idle = if want.contains_key("rc6_ms") { "rc6_ms" } else { "idle_ms" };
        ours.insert(idle.into(), json!(gt.idle_ms.ok()));
        if want.contains_key("tile") {
            ours.insert("tile".into(), json!(gt.tile));
            ours.insert("idle_name".into(), json!(gt.name.as_ref().ok()));
        }
        let mut want = want.clone();
        want.retain(|key, _| {
            !["idle_status", "engines", "throttle_reasons"].contains(&key.as_str())
        });
        assert_eq!(ours, want, "{label}");
    }
}

/// Compares the chosen values with those that LACT, an independent reader, shows.
fn check_chosen(tree: &Noting, card: &Card, sensors: &Sensors, lact: &Value, label: &str) {
    if lact.is_null() {
        return;
    }
    let shown = |group: &str, keys: &[&str]| keys.iter().find_map(|key| lact[group][key].as_f64());
    let (limit, draw) = (sensors.power_limit().ok(), sensors.power_draw().ok());
    let watts = |power: Option<gpu_core::Milliwatts>| power.map(|power| power.0 as f64 / 1000.0);
    assert_eq!(watts(limit), shown("power", &["cap_current"]), "{label}");
    assert_eq!(
        watts(draw.map(|draw| draw.power)),
        shown("power", &["average", "current"]),
        "{label}"
    );
    let (gpu, memory) = (sensors.gpu_temperature().ok(), sensors.memory_temperature().ok());
    let degrees = |degrees: Option<gpu_core::Celsius>| degrees.map(|degrees| f64::from(degrees.0));
    assert_eq!(degrees(gpu), shown("temps", &["edge", "pkg", "gpu", "1"]), "{label}");
    let measured = shown("temps", &["mem", "vram"]).filter(|degrees| *degrees != 0.0);
    assert_eq!(degrees(memory), measured, "{label}");
    // LACT reads no levels, and shows the requested clock of Intel's cards.
    for (clock, key) in [("sclk", "gpu_mhz"), ("mclk", "vram_mhz")] {
        if let (Ok((0x1002, _)), Some(mhz)) = (card.ids.device, lact[key].as_u64()) {
            let found = current_clock(tree, card, sensors, clock);
            assert_eq!(found.map(u64::from), Ok(mhz), "{label} {clock}");
        }
    }
    // Where the counter of the card does not count, that of the package does.
    let has_energy = sensors.0.iter().any(|sensor| sensor.quantity == Quantity::Energy);
    assert_eq!(sensors.energy().is_ok(), has_energy, "{label}");
}

#[test]
fn partitioned_chips_are_cards_and_their_partitions_are_nodes() {
    let Some(data) = data() else { return };
    let chips = truth(&data, "partitioned_chip");
    let root = machine(&data, chips[0]["machine"].as_str().unwrap());
    let tree = Noting::new(root.path());
    let found = cards(&tree).unwrap();
    assert_eq!(found.len(), chips.len());
    let mut nodes = Vec::new();
    for (card, chip) in found.iter().zip(&chips) {
        let values = values(&tree, card);
        let partitions = chip["partitions"].as_array().unwrap().iter();
        let mut minors = partitions.map(|it| it["render"].as_str().unwrap()[7..].parse().unwrap());
        assert_eq!(chip["pci"].as_str().unwrap().parse(), Ok(card.bus));
        assert_eq!(chip["card"], format!("card{}", card.card.unwrap()));
        assert_eq!(chip["device"], format!("{:#06x}", card.ids.device.unwrap().1));
        assert_eq!(chip["unique_id"], format!("{:016x}", values.unique_id.unwrap()));
        assert_eq!(chip["compute"], values.compute_partition.unwrap());
        assert_eq!(chip["memory"], values.memory_partition.unwrap());
        assert_eq!(card.render, minors.next());
        nodes.extend(minors);
    }
    assert_eq!(partition_nodes(&tree), Ok(nodes));
    assert_eq!(gts(&tree, &found[0]), Err(Absent::NotSupported));
    check_files(&tree.take());
}
