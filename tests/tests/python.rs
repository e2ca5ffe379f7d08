//! The Python package, installed as people do and run against the real name server.
//!
//! What it needs is in the Python environment of the tests, so nothing is fetched.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::database::{Database, Kind};
use tests::folder::Folder;
use tests::http::Client;
use tests::peer::free_address;
use tests::program::{Ended, Program};
use tests::serving::Serving;

const ZONE: &str = "$TTL 1h\n@ SOA ns h 1 2h 10m 2w 5m\n@ NS ns\nns A 192.0.2.53\n";
/// A probe that asks nobody.
const CONFIG: &str =
    "version = \"v1\"\n[[probe]]\nname = \"web\"\ncheck = \"command\"\ncommand = [\"/bin/true\"]\n";
const POLICY: &str = r#"{"names":["www.example.com."],"servers":[
    {"address":"192.0.2.1","regions":{"europe":{"probability":1}}},{"address":"192.0.2.2"}]}"#;

/// The longest example of an algorithm, in lines that are not blank: the paper's promise is that one needs few.
const EXAMPLE_LINES_MAX: usize = 20;

/// The package in a folder of its own, and the interpreter that has all else.
struct Package {
    python: OsString,
    folder: Folder,
}

impl Package {
    /// Installs it; `None` where there is no Python environment.
    fn install() -> Option<Package> {
        let Some(python) = std::env::var_os("POINTSMAN_PYTHON") else {
            tests::data::skip(
                "POINTSMAN_PYTHON names no Python with httpx2 (cargo xtask test --install makes one)",
            );
            return None;
        };
        let package = Package { python, folder: Folder::new() };
        let options =
            ["--quiet", "--no-build-isolation", "--no-index", "--no-deps", "--disable-pip-version-check"];
        let mut pip = Command::new(&package.python);
        pip.args(["-m", "pip", "install"]).args(options).arg("--target").arg(package.site()).arg(source(""));
        succeeds(pip);
        Some(package)
    }

    fn site(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    /// A module or script with the package at hand.
    fn run(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("PYTHONPATH", self.site()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.current_dir(self.folder.path());
        command
    }
}

/// What is in the checkout's folder of the package.
fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python").join(path)
}

fn succeeds(command: Command) -> Ended {
    let told = format!("{command:?}");
    let ended = Program::spawn(command).end();
    assert!(ended.status.success(), "{told}: {}{}", ended.stdout, ended.stderr);
    ended
}

fn serving(folder: &Folder, more: &[&str]) -> Serving {
    let config = folder.write("pointsman.toml", CONFIG);
    let zone = folder.write("example.com.zone", ZONE);
    let partition = folder.write("where.csv", "10.0.0.0/8,europe\n");
    let given = ["--config", &config, "--zone", &zone, "--partition", &partition];
    Serving::start(folder, &[&given, more].concat())
}

#[test]
fn the_package_keeps_its_word() {
    let Some(package) = Package::install() else { return };
    let folder = Folder::new();
    let serving = serving(&folder, &[]);
    let mut pytest = package.run();
    pytest.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).arg(source("tests"));
    pytest.env("POINTSMAN_TEST_API", format!("http://{}", serving.api));
    assert!(succeeds(pytest).stdout.contains("13 passed"));
    serving.stop();
}

#[test]
fn the_calls_work_on_a_database_too() {
    let Some(package) = Package::install() else { return };
    for kind in [Kind::Postgres, Kind::Mariadb] {
        let database = Database::start(kind);
        let url = database.url(&database.empty());
        let folder = Folder::new();
        let serving = serving(&folder, &["--store", &url]);
        let mut pytest = package.run();
        pytest.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).arg(source("tests_direct"));
        pytest.env("POINTSMAN_TEST_API", format!("http://{}", serving.api));
        pytest.env("POINTSMAN_TEST_STORE", &url);
        assert!(succeeds(pytest).stdout.contains("13 passed"));
        serving.stop();
    }
}

#[test]
fn types_are_right() {
    let Some(package) = Package::install() else { return };
    let mut mypy = package.run();
    mypy.args(["-m", "mypy", "--no-incremental", "--config-file"]).arg(source("pyproject.toml"));
    mypy.args(["src", "examples", "tests", "tests_direct"].map(source));
    succeeds(mypy);
}

#[test]
fn an_algorithm_of_twenty_lines_decides() {
    let Some(package) = Package::install() else { return };
    let example = source("examples/spare_capacity.py");
    let text = std::fs::read_to_string(&example).expect("it is there");
    assert!(text.lines().filter(|line| !line.is_empty()).count() <= EXAMPLE_LINES_MAX);

    let folder = Folder::new();
    let serving = serving(&folder, &[]);
    serving.call("PUT", "/v1/policies/www.example.com", POLICY);
    folder.write("192.0.2.1", "0.75");
    folder.write("192.0.2.2", "0.5");
    let api = serving.api;
    let run = |loads: &str| {
        let mut script = package.run();
        script.arg(&example).args([&format!("http://{api}"), "www.example.com", loads, "0"]);
        Program::spawn(script).end()
    };
    let of_files = format!("file://{}", folder.at("{}"));
    let ended = run(&of_files);
    assert!(ended.status.success(), "{}", ended.stderr);
    let policy = || Client::new(api).call("GET", "/v1/policies/www.example.com", "").json();
    let cell = &policy()["servers"][0]["regions"]["europe"].clone();
    assert_eq!((&cell["probability"], &cell["ttl"]), (&0.25.into(), &30.into()));
    assert_eq!(policy()["servers"][1]["default"]["probability"], 0.5);

    // A load that is none, and nobody to ask: such a server keeps its shares, and the others go on.
    let nowhere = format!("http://{}/{{}}", free_address());
    folder.write("192.0.2.1", "0.5");
    for (loads, load) in [(&of_files, "\"much\""), (&of_files, "NaN"), (&of_files, "inf"), (&nowhere, "")] {
        folder.write("192.0.2.2", load);
        let ended = run(loads);
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(ended.stderr.contains("192.0.2.2 keeps its shares"), "{}", ended.stderr);
        let servers = policy()["servers"].clone();
        assert_eq!(servers[0]["regions"]["europe"]["probability"], 0.5);
        assert_eq!(servers[1]["default"]["probability"], 0.5);
    }
    serving.stop();
    // Nobody takes the rows: the next turn tries again, here there is none.
    let ended = run(&of_files);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stderr.contains("www.example.com keeps its rows: the API at"), "{}", ended.stderr);
}
