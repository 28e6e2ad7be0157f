//! docs/git-fence.schema.json, and whether what a program printed is as it says.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

/// The file, parsed.
pub(crate) fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/git-fence.schema.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Fails if `value` is not what the schema's definition says.
#[track_caller]
pub(crate) fn assert_is(definition: &'static str, value: &Value) {
    let validator = validator(definition);
    let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{definition}: {errors:#?}\n{value:#}");
}

/// Made once for each definition.
fn validator(definition: &'static str) -> Arc<jsonschema::Validator> {
    static MADE: Mutex<BTreeMap<&str, Arc<jsonschema::Validator>>> = Mutex::new(BTreeMap::new());
    let make = || {
        let mut schema = schema();
        schema["$ref"] = format!("#/$defs/{definition}").into();
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    };
    MADE.lock().unwrap().entry(definition).or_insert_with(make).clone()
}
