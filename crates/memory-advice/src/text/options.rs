//! The options of each engine for each shortage, with a value if the figures give one.
//!
//! Without figures, an option has a direction instead of a value.

use super::message::{Message, engine};
use super::rules::{COMPONENTS, Choice, RULES, Rule, SMALLER_WEIGHTS};
use super::stated::WRAPPED;
use crate::explain::{Remedy, RemedyKind};
use gpu_text::oom::{Event, Framework, Short, Wording};

/// Returns the remedies in the terms of the engine, best first.
pub(super) fn remedies(event: &Event) -> Vec<Remedy> {
    let engine = engine(event);
    let Some(short) = event.short.or(event.engine.map(|_| Short::Compute)) else {
        return Vec::new();
    };
    let message = Message(event);
    // A retry with less memory that succeeds needs no change; other shortages that a program
    // survives may reduce speed.
    let costs = matches!(short, Short::Crowded | Short::Pinned | Short::Pool | Short::Program);
    if event.wording == Some(Wording::NoFailure) && !costs {
        return Vec::new();
    }
    let part = event.part.as_deref().unwrap_or_default().to_lowercase();
    let choices = match (engine, short) {
        (Framework::TensorRtLlm, Short::Component) if message.weights_fill() => {
            Some(SMALLER_WEIGHTS)
        }
        (Framework::TensorRtLlm, Short::Component) => {
            let name = part.split(" (").next().unwrap_or_default();
            COMPONENTS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, choices)| *choices)
        }
        _ => RULES
            .iter()
            .find(|Rule(engines, shorts, _)| engines.contains(&engine) && shorts.contains(&short))
            .map(|Rule(.., choices)| *choices),
    };
    if engine == Framework::Hami && message.needed().is_some_and(|needed| needed >= WRAPPED) {
        let why = "restart the container, whose counter is wrong, or update HAMi".to_owned();
        return vec![Remedy { kind: RemedyKind::Work, set: None, why }];
    }
    let mut remedies: Vec<Remedy> =
        choices.unwrap_or_default().iter().filter_map(|choice| remedy(choice, message)).collect();
    if event.backend.as_deref() == Some("vulkan") && short != Short::OneBuffer {
        remedies.push(Remedy {
            kind: RemedyKind::Environment,
            set: Some("GGML_VK_ALLOW_SYSMEM_FALLBACK=1".to_owned()),
            why: "uses host memory for what does not fit; slower".to_owned(),
        });
    }
    remedies
}

fn remedy(choice: &Choice, message: Message<'_>) -> Option<Remedy> {
    let Choice { set, value, direction, why } = choice;
    if set.is_empty() {
        return Some(Remedy { kind: RemedyKind::Work, set: None, why: (*why).to_owned() });
    }
    let (set, why) = match value(message) {
        Some(value) if value.is_empty() || set.ends_with('=') => {
            (format!("{set}{value}"), (*why).to_owned())
        }
        Some(value) => (format!("{set} {value}"), (*why).to_owned()),
        None if direction.is_empty() => return None,
        None => (set.trim_end_matches('=').to_owned(), format!("{direction}: {why}")),
    };
    let kind = match set.split(['=', ' ']).next().unwrap_or_default() {
        "gpuws" | "sudo" => RemedyKind::Command,
        name if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') => RemedyKind::Environment,
        name if name.starts_with('-') => RemedyKind::Option,
        _ => RemedyKind::Code,
    };
    Some(Remedy { kind, set: Some(set), why })
}
