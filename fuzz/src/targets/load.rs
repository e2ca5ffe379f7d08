//! What load sources answer: JSON, a page of metrics, a command's output.

use control::source::text::{self, Sample};

/// The first line is what is looked for; what follows is what came.
pub(super) fn load(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (wanted, came) = text.split_once('\n').unwrap_or((&text, ""));
    if let Ok(sample) = Sample::parse(wanted) {
        let _ = sample.read(came);
        let _ = sample.with("1", "{").read(came);
    }
    let _ = text::json(came.as_bytes(), wanted);
    if let Ok(number) = text::number_after(came, wanted) {
        // Only digits make a number: the words for what is none do not.
        assert!(!number.is_nan(), "{came:?}");
    }
}

pub(super) fn loads() -> Vec<Vec<u8>> {
    [
        "node_load1\n# TYPE node_load1 gauge\nnode_load1 0.21\n",
        "requests_total{code=\"200\"}\nrequests_total{code=\"200\",path=\"/a\\\"b\"} 10 1395066363000\nodd NaN\n",
        "/load/1\n{\"load\":[0.1,2e3]}",
        "load average:\n 10:52:01 up 3 days,  2:11,  1 user,  load average: 0.52, -.58, 1.59e-3\n",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .into()
}
