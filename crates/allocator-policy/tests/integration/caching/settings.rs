//! Settings in PyTorch's forms.

use gpu_allocator_policy::caching::{SettingError, Settings};
use gpu_core::Bytes;
use std::collections::BTreeMap;

fn parse(text: &str) -> Settings {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// PyTorch's `allocator_config_test`.
#[test]
fn settings_parse_from_text() {
    let settings = parse(
        "max_split_size_mb:40,max_non_split_rounding_mb:30,garbage_collection_threshold:0.5,\
         roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1],expandable_segments:True,\
         pinned_use_background_threads:True",
    );
    assert_eq!(settings.max_split_size(), Some(Bytes::from_mib(40)));
    assert_eq!(settings.max_non_split_rounding(), Bytes::from_mib(30));
    assert_eq!(settings.garbage_collection_threshold(), Some(0.5));
    assert!(settings.expandable_segments());
    let expected = [8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1];
    assert_eq!(settings.roundup_power2_divisions(), &expected);
    assert_eq!(settings.others()["pinned_use_background_threads"], "True");
}

/// Also from PyTorch's `allocator_config_test`, plus the defaults of settings that are not given.
#[test]
fn large_segment_size_is_parsed_before_dependent_sizes() {
    let settings =
        parse("max_split_size_mb:15,max_non_split_rounding_mb:40,large_segment_size_mb:15");
    assert_eq!(settings.large_segment_size(), Bytes::from_mib(15));
    assert_eq!(settings.max_split_size(), Some(Bytes::from_mib(15)));
    assert_eq!(settings.max_non_split_rounding(), Bytes::from_mib(40));
    let settings = parse("large_segment_size_mb:64");
    assert_eq!(settings.max_non_split_rounding(), Bytes::from_mib(64));
    assert!(settings.others().is_empty());
    let default = Settings::default();
    assert_eq!(default.large_segment_size(), Bytes::from_mib(20));
    assert_eq!(default.max_non_split_rounding(), Bytes::from_mib(20));
}

#[test]
fn single_roundup_division_applies_to_all_sizes() {
    assert_eq!(parse(" roundup_power2_divisions : 8 ,").roundup_power2_divisions(), &[8; 16]);
    assert_eq!(parse(""), Settings::default());
    assert_eq!(parse("max_split_size_mb: 128").max_split_size(), Some(Bytes::from_mib(128)));
}

#[test]
fn settings_round_trip_through_text() {
    for text in [
        "",
        "max_split_size_mb:128,garbage_collection_threshold:0.8,expandable_segments:True",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
        "max_non_split_rounding_mb:64,per_process_memory_fraction:0.25,backend:native",
        "max_split_size_mb:12,large_segment_size_mb:12",
        "max_non_split_rounding_mb:20,large_segment_size_mb:20",
    ] {
        let settings = parse(text);
        assert_eq!(parse(&settings.to_string()), settings, "{settings}");
    }
    let text = "max_split_size_mb:128,expandable_segments:True,backend:native";
    assert_eq!(parse(text).to_string(), text);
}

#[test]
fn unknown_setting_suggests_nearest() {
    let error = "max_split_size:128".parse::<Settings>().expect_err("it is not a key");
    let expected = "parse the allocator setting 'max_split_size': unknown setting; \
                    did you mean 'max_split_size_mb'?";
    assert_eq!(error.to_string(), expected);
    let error = "colour:blue".parse::<Settings>().expect_err("it is not a key").to_string();
    assert!(
        error.contains("expected one of max_split_size_mb, max_non_split_rounding_mb"),
        "{error}"
    );
    let hostile = "\u{1b}[31mx:1".parse::<Settings>().expect_err("it is not a key").to_string();
    assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
}

#[test]
fn values_invalid_in_pytorch_are_rejected() {
    for text in [
        "max_split_size_mb:19",
        "max_split_size_mb:many",
        "max_split_size_mb:-1",
        "max_non_split_rounding_mb:1",
        "large_segment_size_mb:10",
        "large_segment_size_mb:large",
        "max_split_size_mb:40,large_segment_size_mb:41",
        "large_segment_size_mb:41,max_non_split_rounding_mb:40",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:nan",
        "per_process_memory_fraction:1.5",
        "per_process_memory_fraction:inf",
        "expandable_segments:true",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[300:2]",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[256]",
    ] {
        let refused = text.parse::<Settings>();
        assert!(matches!(refused, Err(SettingError::Value { .. })), "{text}: {refused:?}");
    }
    assert!(matches!("expandable_segments".parse::<Settings>(), Err(SettingError::Form { .. })));
}

#[test]
fn rejected_change_has_no_effect() {
    let mut settings = parse("max_split_size_mb:128");
    let before = settings.clone();
    assert!(settings.set("max_split_size_mb", "1").is_err());
    assert!(settings.set("roundup_power2_divisions", "[1:2,2:3]").is_err());
    assert_eq!(settings, before);
    settings.set("expandable_segments", "True").expect("it is a setting");
    assert!(settings.expandable_segments());
}

fn recorded(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn snapshot_settings_are_parsed() {
    let zeros: Vec<_> = (0..16).map(|index| format!("{}:0", 1u64 << index)).collect();
    let settings = Settings::from_recording(&recorded(&[
        ("PYTORCH_CUDA_ALLOC_CONF", ""),
        ("max_split_size", "-1"),
        ("garbage_collection_threshold", "0.0"),
        ("expandable_segments", "False"),
        ("pinned_num_register_threads", "1"),
        ("release_lock_on_cudamalloc", "False"),
        ("pinned_use_cuda_host_register", "False"),
        ("roundup_power2_divisions", &zeros.join(",")),
    ]))
    .expect("they are valid");
    assert!(settings.others().len() == 3 && settings.max_split_size().is_none());
    assert_eq!(settings.roundup_power2_divisions(), &[0; 16]);

    let settings = Settings::from_recording(&recorded(&[
        ("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.5,max_split_size_mb:64,new:1"),
        ("max_split_size", "134217728"),
        ("garbage_collection_threshold", "0.8"),
        ("expandable_segments", "True"),
        ("roundup_power2_divisions", "1:0,2:4"),
        ("a_later_setting", "7"),
    ]))
    .expect("they are valid");
    assert_eq!(
        settings.max_split_size(),
        Some(Bytes::from_mib(128)),
        "the effective setting applies"
    );
    assert_eq!(settings.per_process_memory_fraction(), Some(0.5));
    assert_eq!(settings.garbage_collection_threshold(), Some(0.8));
    assert!(settings.expandable_segments());
    assert_eq!(settings.roundup_power2_divisions()[..3], [0, 4, 0]);
    assert_eq!(
        (settings.others()["new"].as_str(), settings.others()["a_later_setting"].as_str()),
        ("1", "7")
    );

    let wrong = Settings::from_recording(&recorded(&[("max_split_size", "12")]));
    assert!(matches!(wrong, Err(SettingError::Value { .. })));
}

#[cfg(feature = "serde")]
#[test]
fn settings_serialize_with_limit() {
    let mut settings = parse("max_split_size_mb:128");
    settings.set_limit(Some(Bytes(1000)));
    let text = serde_json::to_string(&settings).expect("it can be written");
    assert_eq!(text, r#"{"settings":"max_split_size_mb:128","limit_bytes":1000}"#);
    assert_eq!(serde_json::from_str::<Settings>(&text).ok(), Some(settings));
    assert!(serde_json::from_str::<Settings>(r#"{"settings":"max_split_size_mb:1"}"#).is_err());
}

#[test]
fn recorded_large_segment_size_is_used() {
    let text = "max_split_size_mb:12,large_segment_size_mb:12";
    let settings = Settings::from_recording(&recorded(&[
        ("PYTORCH_CUDA_ALLOC_CONF", text),
        ("max_split_size", "12582912"),
    ]))
    .expect("they are valid");
    assert_eq!(settings, parse(text));
    let wrong = Settings::from_recording(&recorded(&[
        ("PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:32"),
        ("max_split_size", "20971520"),
    ]));
    assert!(matches!(wrong, Err(SettingError::Value { .. })));
}
