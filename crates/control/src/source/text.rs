//! Finding a value in what a source answered.

/// The longest part of an answer that is quoted where nothing is found, in characters.
const QUOTE_MAX: usize = 80;

/// A metric in Prometheus's text format: a name, and labels that it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    name: String,
    labels: Labels,
}

impl Sample {
    /// Reads a metric as it is written on a page, such as `node_load1` or `requests_total{code="200"}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Sample, String> {
        match series(text) {
            Some((name, labels, "")) => Ok(Sample { name: name.into(), labels }),
            _ => Err(format!("{text:?} is no metric")),
        }
    }

    /// The same metric with `part` of its labels' values replaced.
    #[must_use]
    pub fn with(&self, part: &str, by: &str) -> Sample {
        let labels = self.labels.iter().map(|(label, value)| (label.clone(), value.replace(part, by)));
        Sample { name: self.name.clone(), labels: labels.collect() }
    }

    /// The sum of the samples on a page that have this name and, beside others, these labels.
    ///
    /// # Errors
    /// Where there is none, and where one of them has no number.
    pub fn read(&self, page: &str) -> Result<f64, String> {
        let mut sum = None;
        for line in page.lines() {
            let Some((name, labels, rest)) = series(line.trim()) else { continue };
            if name != self.name || !self.labels.iter().all(|wanted| labels.contains(wanted)) {
                continue;
            }
            // Behind the value there may be a time stamp.
            let value = rest.split_ascii_whitespace().next().and_then(|value| value.parse::<f64>().ok());
            let value = value.ok_or_else(|| format!("{} has no number: {:?}", self.name, quoted(rest)))?;
            sum = Some(sum.unwrap_or(0.0) + value);
        }
        sum.ok_or_else(|| format!("there is no metric {}", self.name))
    }
}

/// Labels and their values.
type Labels = Vec<(String, String)>;

/// The name, the labels and what follows them; `None` for a comment and for what is none.
fn series(line: &str) -> Option<(&str, Labels, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let end = line.find(|c| !is_name(c)).unwrap_or(line.len());
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = Vec::new();
    let Some(inside) = rest.strip_prefix('{') else { return Some((name, labels, rest.trim_start())) };
    rest = inside.trim_start();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((name, labels, rest.trim_start()));
        }
        let (label, value) = rest.split_once('=')?;
        let (value, behind) = quoted_value(value.trim_start())?;
        labels.push((label.trim().into(), value));
        rest = behind.trim_start();
        rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
    }
}

/// A text in quotation marks, with its escapes undone, and what follows it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

/// The number at `pointer` (RFC 6901) of a JSON document.
///
/// # Errors
/// Where the document is none, or there is no number.
pub fn json(document: &[u8], pointer: &str) -> Result<f64, String> {
    let document: serde_json::Value =
        serde_json::from_slice(document).map_err(|cause| format!("this is no JSON: {cause}"))?;
    let value = document.pointer(pointer).ok_or_else(|| format!("there is nothing at {pointer:?}"))?;
    value.as_f64().ok_or_else(|| format!("at {pointer:?} there is no number: {}", quoted(&value.to_string())))
}

/// The first number behind `after`; behind the beginning where that is empty.
///
/// # Errors
/// Where there is none.
pub fn number_after(text: &str, after: &str) -> Result<f64, String> {
    let start = text.find(after).map(|at| at + after.len());
    let rest = start.map(|start| &text[start..]);
    let rest = rest.ok_or_else(|| format!("{after:?} does not stand in {:?}", quoted(text)))?;
    let digit = rest.find(|c: char| c.is_ascii_digit());
    let Some(digit) = digit else { return Err(format!("there is no number in {:?}", quoted(rest))) };
    let sign = rest[..digit].trim_end_matches('.');
    let start = if sign.ends_with('-') { sign.len() - 1 } else { sign.len() };
    let number = &rest[start..];
    let length = |text: &str| {
        let part = |c: char| c.is_ascii_digit() || c == '.';
        let sign = usize::from(text.starts_with('-'));
        let mantissa = sign + text[sign..].find(|c| !part(c)).unwrap_or(text.len() - sign);
        let exponent = text[mantissa..].strip_prefix(['e', 'E']).map_or(0, |exponent| {
            let digits = exponent.trim_start_matches(['-', '+']);
            let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if count == 0 { 0 } else { 1 + exponent.len() - digits.len() + count }
        });
        mantissa + exponent
    };
    let number = number[..length(number)].trim_end_matches('.');
    number.parse().map_err(|_| format!("{number:?} is no number"))
}

fn quoted(text: &str) -> String {
    text.trim().chars().take(QUOTE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP node_load1 1m load average.\n# TYPE node_load1 gauge\nnode_load1 0.21\n\
        requests_total{code=\"200\",path=\"/a\\\"b\"} 10 1395066363000\nrequests_total{ code = \"200\", path=\"/\" , } 5\n\
        requests_total{code=\"500\"} 1e3\nodd NaN\nbroken{a=\"b 1\nword none\n";

    #[test]
    fn metrics_are_found_by_name_and_labels() {
        let read = |wanted: &str| Sample::parse(wanted).and_then(|sample| sample.read(PAGE));
        assert_eq!(read("node_load1"), Ok(0.21));
        assert_eq!(read("requests_total"), Ok(1015.0));
        assert_eq!(read("requests_total{code=\"200\"}"), Ok(15.0));
        assert_eq!(read("requests_total{code=\"200\",path=\"/a\\\"b\"}"), Ok(10.0));
        assert!(read("odd").is_ok_and(f64::is_nan));
        for wanted in ["node_load", "requests_total{code=\"404\"}", "broken", "word"] {
            assert!(read(wanted).is_err(), "{wanted}");
        }
        for wanted in ["", "1a", "a b", "a{b}", "a{b=\"c\"", "a{b=c}"] {
            assert!(Sample::parse(wanted).is_err(), "{wanted}");
        }
    }

    #[test]
    fn numbers_of_json_are_found_by_pointer() {
        for (document, pointer, expected) in [
            ("0.5", "", Ok(0.5)),
            (r#"{"load":[0.1,2]}"#, "/load/1", Ok(2.0)),
            (r#"{"load":-1}"#, "/load", Ok(-1.0)),
            (r#"{"load":"0.1"}"#, "/load", Err("at \"/load\" there is no number: \"0.1\"")),
            (r#"{"load":1}"#, "/lord", Err("there is nothing at \"/lord\"")),
        ] {
            assert_eq!(json(document.as_bytes(), pointer), expected.map_err(str::to_owned), "{document}");
        }
        assert!(json(b"{\"load\":NaN}", "/load").is_err());
    }

    #[test]
    fn numbers_of_a_line_stand_behind_a_text() {
        let uptime = " 10:52:01 up 3 days,  2:11,  1 user,  load average: 0.52, 0.58, 1.59\n";
        for (text, after, expected) in [
            (uptime, "load average:", Some(0.52)),
            (uptime, "up ", Some(3.0)),
            ("7", "", Some(7.0)),
            ("load -1.5e2.", "load", Some(-150.0)),
            ("load .5", "load", Some(0.5)),
            ("1.5.", "", Some(1.5)),
            ("2e", "", Some(2.0)),
            ("1.2.3", "", None),
            ("load: nan", "load:", None),
            (uptime, "average of load", None),
            ("", "", None),
        ] {
            assert_eq!(number_after(text, after).ok(), expected, "{text:?} behind {after:?}");
        }
    }
}
