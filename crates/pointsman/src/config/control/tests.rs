use super::*;

const HEAD: &str = "version = \"v1\"\npolicy = \"www.example.com\"\n";

fn lowered(text: &str) -> Result<Lowered, String> {
    read(Path::new("/etc/c.toml"), text).1.map_err(|faults| faults.to_string())
}

fn check(text: &str, expected: &[&str]) {
    let found = lowered(text).expect_err("something is wrong");
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{found}");
    for (line, expected) in lines.iter().zip(expected) {
        let whole = format!("/etc/c.toml:{expected}");
        assert!(line.starts_with(&whole), "{line}\nis not\n{whole}");
    }
}

#[test]
fn a_whole_configuration() {
    let text = format!(
        "{HEAD}algorithm = \"II\"\nttl = \"1 min\"\nfavour = 2\n\
         [[source]]\nname = \"load\"\nkind = \"command\"\ncommand = [\"ssh\", \"{{address}}\", \"uptime\"]\n\
         after = \"average:\"\nlow = 0.4\nhigh = 0.6\n\
         [[source]]\nname = \"requests\"\nkind = \"prometheus\"\nurl = \"http://{{address}}:9100/metrics\"\n\
         metric = \"requests_total\"\nper_second = true\nlow = 10\nhigh = 20.5\nthreshold = 18\nweight = 2\n\
         [[server]]\naddress = \"192.0.2.1\"\nalso = [\"2001:db8::1\"]\ncapacity = 2\nranks = {{ europe = 1, asia = 2 }}\n\
         [[server]]\naddress = \"192.0.2.2\"\n[server.ranks]\nasia = 1\neurope = 2\n"
    );
    let Lowered { options, interval, .. } = lowered(&text).expect("it is right");
    assert!(matches!(options.rule.algorithm, Algorithm::Second(2.0)));
    assert_eq!((options.rule.ttl, interval), (60, Duration::from_secs(10)));
    assert_eq!(options.rule.regions, ["asia", "europe"]);
    assert_eq!(options.rule.servers[0].targets.len(), 2);
    let ranks: Vec<&[u32]> = options.rule.servers.iter().map(|server| &server.ranks[..]).collect();
    assert_eq!(ranks, [[2, 1], [1, 2]]);
    let scales: Vec<Scale> = options.sources.iter().map(|source| source.scale).collect();
    assert_eq!(scales[0], Scale { threshold: 0.6, low: 0.4, high: 0.6, weight: 1.0 });
    assert_eq!(scales[1], Scale { threshold: 18.0, low: 10.0, high: 20.5, weight: 2.0 });
    assert!(options.sources[1].per_second && !options.sources[0].per_second);
}

#[test]
fn what_is_not_said_goes_by_what_is() {
    let rest = "[[source]]\nname = \"a\"\nkind = \"command\"\ncommand = [\"cat\", \"load\"]\nthreshold = 1\n\
                [[server]]\naddress = \"192.0.2.1\"\n";
    for (interval, timeout, stale) in [(1, 1, 30), (10, 2, 30), (60, 2, 180)] {
        let Lowered { options, .. } =
            lowered(&format!("{HEAD}interval = \"{interval} s\"\n{rest}")).expect("it is right");
        assert_eq!((options.timeout.as_secs(), options.stale.as_secs()), (timeout, stale), "{interval} s");
        let Kind::Command { folder, .. } = &options.sources[0].kind else { panic!("it is a command") };
        assert_eq!(folder, Path::new("/etc/."), "relative paths are relative to the file");
    }
}

#[test]
fn everything_wrong_is_listed_at_once_with_its_line() {
    check(
        "version = \"v1\"\nspeed = 9\nstep = 0.01\ntimeout = \"20 s\"\n",
        &[
            "2:1: unknown key speed; expected version, policy,",
            " the key policy is missing",
            " there is no source of loads",
            " there is no server",
            "4:11: timeout is 20s, interval only 10s; expected timeout <= interval",
            "3:8: hysteresis is 0.05, step only 0.01; expected hysteresis < step",
        ],
    );
    check(
        &format!(
            "{HEAD}algorithm = \"II\"\nlisten = \"0.0.0.0:80\"\n\
             [[source]]\nname = \"a\"\nkind = \"json\"\nlow = 0.6\nhigh = 0.4\nafter = \"x\"\nurl = \"https://{{address}}\"\n\
             [[source]]\nname = \"a\"\nkind = \"prometheus\"\nurl = \"http://one\"\nmetric = \"1\"\nlow = -1\nhigh = nan\n\
             [[source]]\nkind = \"push\"\nweight = 0\nthreshold = 1\n\
             [[server]]\naddress = \"192.0.2.1\"\nranks = {{ europe = 7, asia = 0 }}\n\
             [[server]]\naddress = \"192.0.2.1\"\ncapacity = 0\nranks = {{ europe = 1 }}\n\
             [[server]]\naddress = \"192.0.2.300\"\nranks = {{ europe = 1 }}\n\
             [[server]]\naddress = \"A.test\"\nalso = [\"192.0.2.8\"]\nranks = {{ europe = 1 }}\n\
             [[server]]\naddress = \"a.test.\"\nranks = {{ europe = 1 }}\n\
             [[server]]\nranks = {{ europe = 1 }}\n"
        ),
        &[
            "17:7: low is the number -1; expected a number of at least 0",
            "18:8: high is the number nan; expected a number above 0",
            "21:10: weight is the number 0; expected a number above 0",
            "25:30: the rank of asia is the number 0; expected a whole number from 1 on",
            "28:12: capacity is the number 0; expected a number above 0",
            "31:11: address is \"192.0.2.300\"; expected an IP address such as 192.0.2.1 or 2001:db8::1, or a name",
            "8:7: the watermarks are crossed: low is 0.6, high 0.4; expected low < high",
            "10:9: after beside kind json; expected no after",
            "11:7: url: \"https://192.0.2.1\": the load is asked over plain http",
            "13:8: the source a is given twice; expected each name once",
            "12:1: the source does not say whose load it is: all servers would have the same",
            "16:10: metric: \"1\" is no metric; expected a metric such as node_load1",
            "19:1: the source has no name; expected the key name",
            "19:1: the source has no low, which Algorithm II needs; expected the key low",
            "19:1: the source has no high, which Algorithm II needs; expected the key high",
            "25:20: the rank of europe is 7; expected a rank from 1 to 6",
            "27:11: 192.0.2.1 is given twice; expected each server once",
            "35:9: the server is a name; expected also beside an address alone",
            "38:11: a.test. is given twice; expected each server once",
            "40:1: the server has no address; expected the key address",
            "19:1: a source of kind push takes reports, and there is no report_token_file",
            "4:10: listen is 0.0.0.0:80, which other machines reach, and there is no token",
        ],
    );
}

#[test]
fn values_that_would_be_taken_for_others_are_faults() {
    let rest = "[[source]]\nname = \"l\"\nkind = \"json\"\nurl = \"http://{address}/\"\nthreshold = 1\n\
                [[server]]\naddress = \"192.0.2.1\"\n";
    check(&format!("version = \"v1\"\npolicy = \"\"\n{rest}"), &["2:10: policy is an empty text"]);
    for policy in ["a..b", ".example.com", &"x".repeat(64)] {
        let told = format!("2:10: policy: '{policy}' is not a domain name: ");
        check(&format!("version = \"v1\"\npolicy = \"{policy}\"\n{rest}"), &[&told]);
    }
    check(&format!("{HEAD}ttl = \"1500 ms\"\n{rest}"), &["3:7: ttl is 1.5s; expected whole seconds"]);
    let Lowered { options, .. } =
        lowered(&format!("{HEAD}ttl = \"2000 ms\"\n{rest}")).expect("these are two");
    assert_eq!(options.rule.ttl, 2);
}

#[test]
fn a_mistake_with_watermarks_is_told_once() {
    let told = |algorithm: &str, keys: &str, expected: &[&str]| {
        let text = format!(
            "{HEAD}algorithm = \"{algorithm}\"\n[[source]]\nname = \"l\"\nkind = \"json\"\n\
             url = \"http://{{address}}/\"\n{keys}\n[[server]]\naddress = \"192.0.2.1\"\n"
        );
        check(&text, expected);
    };
    let crossed = "8:7: the watermarks are crossed: low is 0.6, high 0.4; expected low < high";
    let no_high = "4:1: the source has no high, which Algorithm II needs; expected the key high";
    told("II", "low = 0.6\nhigh = 0.4", &[crossed]);
    told("II", "low = 0.6\nthreshold = 0.4", &[no_high]);
    told("III", "low = 0.6\nthreshold = 0.4", &[crossed]);
    told("II", "low = 0.4\nhigh = \"much\"", &["9:8: high is "]);
    told("I", "threshold = -1", &["8:13: threshold is the number -1"]);
    let no_threshold =
        "4:1: the source has no threshold, which Algorithm III needs; expected the key threshold";
    told("III", "low = 0.6\nhigh = 0.4", &[no_threshold, crossed]);
}

#[test]
fn the_paper_s_two_servers_of_one_region_have_ranks_one_and_two() {
    let text = format!(
        "{HEAD}[[source]]\nname = \"l\"\nkind = \"json\"\nurl = \"http://{{address}}/\"\nthreshold = 0.5\n\
         [[server]]\naddress = \"192.0.2.1\"\nranks.all = 1\n[[server]]\naddress = \"192.0.2.2\"\nranks.all = 2\n"
    );
    let Lowered { options, .. } = lowered(&text).expect("section 7 of the paper");
    let chosen = Parameters::new(Duration::from_secs(30), Duration::from_secs(10));
    assert!(matches!(&options.rule.algorithm, Algorithm::Third(third) if third.parameters() == chosen));
    assert_eq!(options.rule.servers[1].ranks, [2]);
}

#[test]
fn the_template_is_fresh_and_holds_when_uncommented() {
    let template = super::super::page::control_template();
    ::tests::fresh::check("etc/control.template.toml", &template);
    let uncomment = |line: &str| {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ') && !rest.is_empty());
        setting.unwrap_or(line).to_owned() + "\n"
    };
    let settings: String = template.lines().map(uncomment).collect();
    for key in CONTROL.keys {
        let line = format!("{} = ", key.name);
        assert_eq!(settings.lines().filter(|setting| setting.starts_with(&line)).count(), 1, "{}", key.name);
    }
    // The tokens are not there.
    let settings: Vec<&str> = settings.lines().filter(|line| !line.contains("token_file")).collect();
    let settings =
        settings.join("\n").replace("kind = \"push\"", "kind = \"json\"\nurl = \"http://{address}/\"");
    let Lowered { options, .. } = lowered(&settings).expect("what the template shows is right");
    assert_eq!((options.sources.len(), options.rule.servers.len()), (4, 2));
}

#[test]
fn the_manual_is_fresh() {
    ::tests::fresh::check("docs/reference/control-configuration.md", &super::super::page::control_manual());
}
