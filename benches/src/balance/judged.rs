//! What rules take to say where a query goes: no socket, no network.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};
use balancer::rules::{Arrival, NAMES_MAX, RULES_MAX, Rule, Rules, Then};
use dns::{Folded, Query, Rtype};
use fastrand::Rng;

use crate::options::Options;
use crate::report::{Report, Table, median};

/// Queries of a pass, each for another name, and passes.
const QUERIES: usize = 100_000;
const PASSES: usize = 11;

/// How many letters the first label of a listed name has: names of lists differ there.
const LETTERS: usize = 12;

/// Measures rules of some sizes, by the same queries: half of them are below a name that the largest has.
///
/// # Errors
/// Where a query cannot be read.
pub(crate) fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut rng = Rng::with_seed(options.seed);
    let listed: Vec<Vec<u8>> = (0..NAMES_MAX).map(|_| listed(&mut rng)).collect();
    let messages: Vec<Vec<u8>> = (0..QUERIES).map(|number| message(number, &listed, &mut rng)).collect();
    let mut names = vec![Folded::root(); QUERIES];
    let read = messages.iter().zip(&mut names).map(|(message, name)| Query::read(message, name).ok());
    let queries = read.collect::<Option<Vec<_>>>().context("a query that is none was made")?;
    let none = Rules::default();
    let (one, all) = (vec![by_name("one", listed[..1].to_vec())], many(&listed));
    let worlds = [
        ("none", Rules::default()),
        ("one, of one name", Rules::new(one, &none)),
        ("64, of 100,000 names", Rules::new(all, &none)),
    ];
    let mut times: Vec<Vec<f64>> = worlds.iter().map(|_| Vec::new()).collect();
    for _ in 0..PASSES {
        for ((_, rules), times) in worlds.iter().zip(&mut times) {
            times.push(pass(rules, &queries));
        }
    }
    let row = |((what, _), times): (&(&str, Rules), Vec<f64>)| {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = median(&times).unwrap_or_default();
        vec![(*what).to_owned(), format!("{middle:.1}"), format!("{least:.1}")]
    };
    report.add(Table {
        title: "Rules that judge a query",
        head: &["rules", "ns, median of passes", "ns, least"],
        rows: worlds.iter().zip(times).map(row).collect(),
    });
    Ok(())
}

/// Nanoseconds a query.
fn pass(rules: &Rules, queries: &[Query<'_>]) -> f64 {
    let arrival = Arrival { client: [192, 0, 2, 1].into(), is_datagram: true, now_ns: 1 };
    let begin = Instant::now();
    for query in queries {
        black_box(rules.judge(black_box(query), arrival, || 1));
    }
    begin.elapsed().as_secs_f64() * 1e9 / queries.len() as f64
}

/// As many as there may be: most by a name and a client that does not ask, and last one with all the other names.
fn many(listed: &[Vec<u8>]) -> Vec<Rule> {
    let (few, list) = listed.split_at(RULES_MAX - 1);
    let elsewhere = "10.0.0.0/8".parse().ok();
    let few = few.iter().enumerate().map(|(number, name)| Rule {
        clients: elsewhere.into_iter().collect(),
        ..by_name(&number.to_string(), vec![name.clone()])
    });
    few.chain([by_name("list", list.to_vec())]).collect()
}

fn by_name(name: &str, names: Vec<Vec<u8>>) -> Rule {
    Rule {
        name: name.into(),
        names: Some(names),
        types: Vec::new(),
        clients: Vec::new(),
        per_second: None,
        then: Then::Nxdomain,
    }
}

/// A name as lists of them have it, in wire form.
fn listed(rng: &mut Rng) -> Vec<u8> {
    let first = (0..LETTERS).map(|_| rng.u8(b'a'..=b'z'));
    [LETTERS as u8].into_iter().chain(first).chain(*b"\x07example\x03com\0").collect()
}

/// A query for `www` below a listed name, or below another one.
fn message(number: usize, names: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let name = if number.is_multiple_of(2) { names[rng.usize(..names.len())].clone() } else { listed(rng) };
    let head = [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &b"\x03www"[..], &name].concat();
    [&head[..], &Rtype::A.to_int().to_be_bytes(), &[0, 1]].concat()
}
