//! Why a request was refused: one shape for everything that the API refuses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fault::{Fault, Faults};

/// What is wrong with a request, and what was expected instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What is wrong, in lower case, without a full stop.
    pub what: String,
    /// What was expected instead; absent where `what` says it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// Everything that is wrong with the body, in the order in which it stands there; absent where the
    /// problem is no fault of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// How many more faults there were than the list keeps; absent where there were none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

impl Problem {
    /// A problem without a list of faults; `expected` may be empty.
    pub fn new(what: impl Into<String>, expected: impl Into<String>) -> Self {
        Problem { what: what.into(), expected: expected.into(), ..Problem::default() }
    }
}

impl From<Faults> for Problem {
    /// The faults of a body, with a sentence that says how many.
    fn from(Faults { faults, omitted }: Faults) -> Self {
        let what = match faults.len() as u64 + omitted {
            1 => "the body has 1 fault".to_owned(),
            count => format!("the body has {count} faults"),
        };
        Problem { what, expected: String::new(), faults, omitted }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_absent() {
        let check = |problem: Problem, expected: &str| {
            assert_eq!(serde_json::to_string(&problem).unwrap(), expected);
            assert_eq!(serde_json::from_str::<Problem>(expected).unwrap(), problem);
        };
        check(Problem::new("no such zone", ""), r#"{"what":"no such zone"}"#);
        check(Problem::new("too long", "64 bytes"), r#"{"what":"too long","expected":"64 bytes"}"#);
        let faults = Faults { faults: vec![Fault::whole("body", "empty", "")], omitted: 0 };
        check(
            faults.into(),
            r#"{"what":"the body has 1 fault","faults":[{"source":"body","what":"empty"}]}"#,
        );
        let faults = Faults { faults: vec![Fault::whole("body", "empty", "")], omitted: 2 };
        check(
            faults.into(),
            r#"{"what":"the body has 3 faults","faults":[{"source":"body","what":"empty"}],"omitted":2}"#,
        );
    }
}
