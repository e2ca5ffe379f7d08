//! An OpenAPI document as a test reads it.

use serde_json::Value;

/// Every operation with its statuses, such as `get /v1/status 200 401`; in order.
///
/// # Panics
/// Where it is no document with paths, methods and responses.
pub fn operations(document: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(document).expect("it is JSON");
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let responses = operation["responses"].as_object().expect("responses");
            let mut statuses: Vec<&str> = responses.keys().map(String::as_str).collect();
            statuses.sort_unstable();
            found.push(format!("{method} {path} {}", statuses.join(" ")));
        }
    }
    found.sort();
    found
}
