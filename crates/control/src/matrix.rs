//! A policy's matrix as shares of servers, and shares as a matrix.
//!
//! The control process thinks in servers: machines with a load, of which one may have several addresses. The policy has
//! a cell for each address and draws among those of the family that is asked for. So a server's share is written at
//! each of its addresses, and is read at those of its first family. What is read is who clients are sent to: a server
//! that the name server leaves out has nothing of it.

use api::{Entry, Policy, Server, Target};

use crate::out::Out;
use crate::situation::Shares;

/// A server of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its number in the configuration; `None` for a server that only the policy knows.
    pub configured: Option<usize>,
    /// Which of the policy's servers are its addresses; at least one.
    pub places: Vec<usize>,
    /// Those of them that are drawn; none for a server that is left out.
    pub drawn: Vec<usize>,
}

impl Column {
    fn new(configured: Option<usize>, places: Vec<usize>) -> Column {
        Column { configured, drawn: places.clone(), places }
    }

    /// Why the server is left out, where all of its addresses are.
    pub fn out(&self, out: &[Option<Out>]) -> Option<Out> {
        self.places.iter().map(|place| out[*place]).collect::<Option<Vec<Out>>>()?.first().copied()
    }
}

/// Sorts a policy's addresses, or names, by the servers that have them: the configured ones first, then each of the others
/// alone.
pub fn columns(policy: &Policy, configured: &[Vec<Target>]) -> Vec<Column> {
    let places_of = |targets: &[Target]| -> Vec<usize> {
        let servers = policy.servers.iter().enumerate();
        servers.filter(|(_, server)| targets.contains(&server.target)).map(|(place, _)| place).collect()
    };
    let mut columns: Vec<Column> = configured
        .iter()
        .enumerate()
        .map(|(server, targets)| Column::new(Some(server), places_of(targets)))
        .filter(|column| !column.places.is_empty())
        .collect();
    for (place, server) in policy.servers.iter().enumerate() {
        if !configured.iter().flatten().any(|target| server.target == *target) {
            columns.push(Column::new(None, vec![place]));
        }
    }
    columns
}

/// Takes from configured servers the addresses that are left out: `out` has a reason for each such place. A server that
/// only the policy knows keeps its share also while it is out, since nobody would give it back. Where nobody would be
/// left, all stay: no row decides then.
pub fn leave_out(columns: &mut [Column], out: &[Option<Out>]) {
    let is_out = |column: &Column| column.configured.is_some() && column.out(out).is_some();
    if columns.iter().all(is_out) {
        return;
    }
    for column in columns.iter_mut().filter(|column| column.configured.is_some()) {
        column.drawn.retain(|place| out[*place].is_none());
    }
}

/// What serves: a row for the default column, and one for each region.
pub fn shares(policy: &Policy, columns: &[Column], regions: &[String]) -> Shares {
    let rows = std::iter::once(None).chain(regions.iter().map(Some));
    rows.map(|region| row(policy, columns, region)).collect()
}

fn row(policy: &Policy, columns: &[Column], region: Option<&String>) -> Vec<f64> {
    let rows = [Row::of(policy, region, false), Row::of(policy, region, true)];
    let is_v4 = |place: usize| policy.servers[place].target.is_ipv4();
    let value = |place: usize| rows[usize::from(is_v4(place))].value(&policy.servers[place]);
    let values: Vec<f64> = columns
        .iter()
        .map(|column| {
            let is_first = |place: &&usize| is_v4(**place);
            let first = column.drawn.iter().filter(is_first).count();
            let of_first = |place: &&usize| first == 0 || is_first(place);
            column.drawn.iter().filter(of_first).map(|place| value(*place)).sum()
        })
        .collect();
    let sum: f64 = values.iter().sum();
    if sum.is_finite() && sum > 0.0 {
        values.iter().map(|value| value / sum).collect()
    } else {
        // Where all are 0, any order is as likely as any other (the paper's Algorithm 1).
        let drawn = columns.iter().filter(|column| !column.drawn.is_empty()).count() as f64;
        columns.iter().map(|column| if column.drawn.is_empty() { 0.0 } else { 1.0 / drawn }).collect()
    }
}

/// What one address family answers the clients of a region by.
struct Row<'a> {
    /// The region, where the family has a row for it; else it is the default column.
    region: Option<&'a String>,
    /// Whether no server in it has a probability.
    is_uniform: bool,
}

impl<'a> Row<'a> {
    fn of(policy: &Policy, region: Option<&'a String>, is_v4: bool) -> Self {
        let servers = || policy.servers.iter().filter(|server| server.target.is_ipv4() == is_v4);
        let region = region.filter(|region| servers().any(|server| server.regions.contains_key(*region)));
        let mut row = Row { region, is_uniform: true };
        row.is_uniform = servers().filter_map(|server| row.entry(server)).all(|e| e.probability.is_none());
        row
    }

    fn entry(&self, server: &Server) -> Option<Entry> {
        match self.region {
            Some(region) => server.regions.get(region).copied(),
            None => Some(server.default),
        }
    }

    fn value(&self, server: &Server) -> f64 {
        match self.entry(server) {
            Some(_) if self.is_uniform => 1.0,
            entry => entry.and_then(|entry| entry.probability).unwrap_or(0.0),
        }
    }
}

/// The policy with these shares in its default column and in the regions' rows; the rows of other regions, and all that
/// is not a row, stay as they are.
pub fn with(policy: &Policy, columns: &[Column], regions: &[String], shares: &Shares, ttl: u32) -> Policy {
    let mut policy = policy.clone();
    for (number, column) in columns.iter().enumerate() {
        for place in &column.places {
            let is_v4 = policy.servers[*place].target.is_ipv4();
            let of_family = |places: &[usize]| {
                places.iter().filter(|other| policy.servers[**other].target.is_ipv4() == is_v4).count()
            };
            // Those that are left out take nothing from the others; where all are, they have what they would.
            let alike = match of_family(&column.drawn) {
                0 => of_family(&column.places),
                drawn => drawn,
            };
            let entry =
                |share: f64| Entry { probability: Some(rounded(share / alike as f64)), ttl: Some(ttl) };
            let server = &mut policy.servers[*place];
            server.default = entry(shares[0][number]);
            for (region, row) in regions.iter().zip(&shares[1..]) {
                server.regions.insert(region.clone(), entry(row[number]));
            }
        }
    }
    policy
}

/// The change of a probability up to which cells are as good as the same: no client sees it.
const CHANGE_MIN: f64 = 5e-4;

/// Whether each cell of a policy is as good as that of `other`, which has the same servers.
pub fn is_same(policy: &Policy, other: &Policy) -> bool {
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= CHANGE_MIN,
        _ => a == b,
    };
    let same = |a: &Entry, b: &Entry| a.ttl == b.ttl && near(a.probability, b.probability);
    policy.servers.iter().zip(&other.servers).all(|(server, other)| {
        let regions = server.regions.iter().zip(&other.regions);
        same(&server.default, &other.default)
            && server.regions.len() == other.regions.len()
            && regions.into_iter().all(|((a, entry), (b, other))| a == b && same(entry, other))
    })
}

/// To a hundred-thousandth: no client sees more, and people read it.
fn rounded(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::situation::assert_rows;

    fn policy(text: &str) -> Policy {
        Policy::read("test", text).expect("the test gives a policy")
    }

    fn targets(texts: &[&[&str]]) -> Vec<Vec<Target>> {
        texts.iter().map(|s| s.iter().map(|a| a.parse().expect("an address")).collect()).collect()
    }

    #[test]
    fn what_serves_is_read_as_the_name_server_reads_it() {
        let policy = policy(
            r#"{"servers":[
            {"address":"192.0.2.1","default":{"probability":3},"regions":{"europe":{"ttl":5}}},
            {"address":"192.0.2.2","default":{"probability":1},"regions":{"asia":{"probability":2},"none":{"probability":0}}},
            {"address":"192.0.2.3","regions":{"asia":{"probability":2},"europe":{}}}]}"#,
        );
        let configured = targets(&[&["192.0.2.1"], &["192.0.2.9"], &["192.0.2.3"]]);
        let columns = columns(&policy, &configured);
        let column = |configured, place| Column::new(configured, vec![place]);
        // The second is not in the policy, and the policy has one that is not configured.
        assert_eq!(columns, [column(Some(0), 0), column(Some(2), 2), column(None, 1)]);
        let regions = ["europe", "asia", "none", "oceania"].map(String::from);
        let expected: &[&[f64]] = &[
            &[0.75, 0.0, 0.25],
            // Uniform over those that have an entry, and only they are there.
            &[0.5, 0.5, 0.0],
            &[0.0, 0.5, 0.5],
            &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
            // No row: the default column.
            &[0.75, 0.0, 0.25],
        ];
        assert_rows(&shares(&policy, &columns, &regions), expected);
    }

    #[test]
    fn servers_that_are_names_share_as_others_do() {
        let policy = policy(
            r#"{"servers":[{"cname":"a.example.","default":{"probability":3}},
            {"cname":"b.example.","default":{"probability":1},"regions":{"asia":{}}}]}"#,
        );
        let columns = columns(&policy, &targets(&[&["b.example."], &["a.example."]]));
        let regions = ["asia".to_owned()];
        assert_rows(&shares(&policy, &columns, &regions), &[&[0.25, 0.75], &[1.0, 0.0]]);
        let written = with(&policy, &columns, &regions, &vec![vec![0.5, 0.5], vec![0.125, 0.875]], 60);
        assert_rows(&shares(&written, &columns, &regions), &[&[0.5, 0.5], &[0.125, 0.875]]);
    }

    #[test]
    fn each_family_has_rows_of_its_own() {
        let policy = policy(
            r#"{"servers":[
            {"address":"192.0.2.1","default":{"probability":3}},
            {"address":"192.0.2.2","default":{"probability":1}},
            {"address":"2001:db8::1","regions":{"asia":{"probability":1}}}]}"#,
        );
        let columns = columns(&policy, &targets(&[&["192.0.2.1", "2001:db8::1"]]));
        let regions = ["asia".to_owned()];
        // The row for asia is one of IPv6: clients there have IPv4 addresses by the default column.
        assert_rows(&shares(&policy, &columns, &regions), &[&[0.75, 0.25], &[0.75, 0.25]]);
    }

    #[test]
    fn who_is_left_out_has_nothing_of_what_serves() {
        let policy = policy(
            r#"{"servers":[{"address":"192.0.2.1","default":{"probability":3},"regions":{"asia":{"probability":1}}},
            {"address":"192.0.2.2","default":{"probability":1}},{"address":"192.0.2.3","default":{"probability":2}},
            {"address":"2001:db8::1","default":{"probability":1}}]}"#,
        );
        let configured = targets(&[&["192.0.2.1", "2001:db8::1"], &["192.0.2.2"]]);
        let regions = ["asia".to_owned()];
        let (down, failing) = (Some(Out::Down), Some(Out::Failing));
        let check = |out: [Option<Out>; 4], expected: &[&[f64]]| {
            let mut columns = columns(&policy, &configured);
            leave_out(&mut columns, &out);
            assert_rows(&shares(&policy, &columns, &regions), expected);
        };
        check([None; 4], &[&[0.5, 1.0 / 6.0, 1.0 / 3.0], &[1.0, 0.0, 0.0]]);
        // Those that are left have all; where all of theirs is 0, they are as likely as each other.
        check([down, None, None, failing], &[&[0.0, 1.0 / 3.0, 2.0 / 3.0], &[0.0, 0.5, 0.5]]);
        // One family is out: the share is that of the other, which has no row for the region.
        check([down, None, None, None], &[&[0.25, 0.25, 0.5], &[1.0, 0.0, 0.0]]);
        // The third is not configured.
        check([None, None, down, None], &[&[0.5, 1.0 / 6.0, 1.0 / 3.0], &[1.0, 0.0, 0.0]]);
    }

    #[test]
    fn what_is_written_is_what_is_drawn_where_an_address_is_out() {
        let policy = policy(
            r#"{"servers":[{"address":"192.0.2.1"},{"address":"192.0.2.2"},{"address":"192.0.2.3"}]}"#,
        );
        let configured = targets(&[&["192.0.2.1", "192.0.2.2"], &["192.0.2.3"]]);
        let mut columns = columns(&policy, &configured);
        leave_out(&mut columns, &[None, Some(Out::Failing), None]);
        let wanted = vec![vec![0.5, 0.5]];
        let written = with(&policy, &columns, &[], &wanted, 60);
        assert_rows(&shares(&written, &columns, &[]), &[&[0.5, 0.5]]);
    }

    #[test]
    fn a_server_has_the_same_share_in_both_families() {
        let policy = policy(
            r#"{"answers":2,"names":["www.example.com."],"servers":[
            {"address":"192.0.2.1"},{"address":"192.0.2.2","regions":{"asia":{"probability":1}}},
            {"address":"2001:db8::1"},{"address":"192.0.2.3"}]}"#,
        );
        let configured = targets(&[&["192.0.2.1", "2001:db8::1"], &["192.0.2.2", "192.0.2.3"]]);
        let (columns, regions) = (columns(&policy, &configured), ["europe".to_owned()]);
        let wanted = vec![vec![0.5, 0.5], vec![0.2, 0.8]];
        let new = with(&policy, &columns, &regions, &wanted, 30);
        let cells: Vec<(Option<f64>, Option<f64>)> =
            new.servers.iter().map(|s| (s.default.probability, s.regions["europe"].probability)).collect();
        let expected = [(0.5, 0.2), (0.25, 0.4), (0.5, 0.2), (0.25, 0.4)];
        assert_eq!(cells, expected.map(|(a, b)| (Some(a), Some(b))));
        assert_rows(&shares(&new, &columns, &regions), &[&[0.5, 0.5], &[0.2, 0.8]]);
        let again = |wanted: &Shares, ttl| with(&new, &columns, &regions, wanted, ttl);
        assert!(is_same(&new, &again(&wanted, 30)) && !is_same(&new, &again(&wanted, 60)));
        assert!(!is_same(&policy, &new));
        assert!(!is_same(&new, &again(&vec![vec![0.5, 0.5], vec![0.21, 0.79]], 30)));
        assert!(is_same(&new, &again(&vec![vec![0.5, 0.5], vec![0.2001, 0.7999]], 30)));
        // Each address counts, also one that is not read, and also where two of a family have the share together.
        for (place, other, told) in [(2, 0.3, "the other family"), (1, 0.26, "one of a family's two")] {
            let mut changed = new.clone();
            changed.servers[place].regions.get_mut("europe").expect("it has one").probability = Some(other);
            assert!(!is_same(&changed, &with(&changed, &columns, &regions, &wanted, 30)), "{told}");
        }
        assert_eq!(new.servers[1].regions["asia"].probability, Some(1.0), "other regions stay as they are");
        assert_eq!((new.answers, new.names), (2, policy.names));
    }
}
