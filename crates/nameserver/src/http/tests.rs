//! The API from outside: requests in, answers out, on a real editor and a store in a temporary folder.
//!
//! Every answer is held against the document: a status that it does not name for the route fails the test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use net::histogram::Histogram;
use net::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use web::Counters;

use super::{METRICS, Metrics, SHORT_MAX, TEXTS_SENT_MAX, Tcp, body, metrics, openapi, router};
use crate::book::Book;
use crate::edit::Editor;
use crate::generation::Settings;
use crate::health::{Outcome, Reason};
use crate::import::Import;
use crate::publish::Published;
use crate::transfer::{Secondaries, Secondary};

const ZONE: &str =
    "$TTL 300\n@ SOA ns hostmaster 7 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n";

/// The API on an empty store.
struct Api {
    service: TowerToHyperService<axum::Router>,
    published: Arc<Published>,
    editor: Editor,
    folder: PathBuf,
    document: Value,
    /// Whose numbers are told.
    socket: Option<Arc<net::udp::UdpListener>>,
}

/// An answer.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Api {
    async fn new(token: Option<&str>) -> Api {
        let udp = vec![Arc::default(), Arc::default()];
        let socket = net::udp::bind(([127, 0, 0, 1], 0).into(), None).expect("loopback binds");
        let socket = Arc::new(socket);
        let (tcp, sockets) = (vec![Tcp::default()], vec![Arc::downgrade(&socket)]);
        let mut api = Api::counting(token, Metrics { udp, tcp, sockets, ..Metrics::default() }).await;
        api.socket = Some(socket);
        api
    }

    async fn counting(token: Option<&str>, metrics: Metrics) -> Api {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pointsman-http-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let url = format!("sqlite:{}", folder.join("store.db").display());
        let store = store::Store::open(&url).await.expect("a store");
        let book = Book::empty(1, Settings::default());
        let published = Arc::new(Published::new(book.generation.clone(), 2));
        let editor = Editor::start(store, book, published.clone()).expect("an editor");
        let router = router(editor.clone(), token.map(Into::into), metrics);
        let document = serde_json::from_str(&openapi()).expect("a document");
        Api { service: TowerToHyperService::new(router), published, editor, folder, document, socket: None }
    }

    async fn ask(&self, request: Request) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.service.call(request).await.expect("the router always answers");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let body = String::from_utf8(body.into()).expect("UTF-8");
        let answer = Answer { status: head.status.as_u16(), headers: head.headers, body };
        if let Some(operation) = self.operation(method.as_str(), &path) {
            let documented = &operation["responses"][answer.status.to_string()];
            assert!(documented.is_object(), "{method} {path} answered {} {}", answer.status, answer.body);
            let sent = answer.headers.get("content-type").map_or("", |value| value.to_str().expect("text"));
            let known = documented["content"].as_object();
            assert!(
                known.map_or(answer.body.is_empty(), |known| known.contains_key(sent)),
                "{method} {path} {sent}"
            );
        }
        if answer.status >= 400 {
            assert!(answer.json()["what"].is_string(), "{method} {path}: {}", answer.body);
        }
        answer
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.ask(request.body(body.into()).expect("a request")).await
    }

    async fn json(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(method, path, &[("content-type", "application/json")], body.to_string()).await
    }

    async fn put_zone(&self, origin: &str, text: &str) -> Answer {
        self.send("PUT", &format!("/v1/zones/{origin}"), &[("content-type", "text/dns")], text.to_owned())
            .await
    }

    /// What the document says of a method and a path.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let fits = |template: &str| {
            let (template, path) = (template.split('/'), path.split('/'));
            template.clone().count() == path.clone().count()
                && template.zip(path).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
        };
        let (_, item) = self.document["paths"].as_object()?.iter().find(|(template, _)| fits(template))?;
        item.get(method.to_lowercase())
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // A test that failed to make the folder has failed already.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    fn etag(&self) -> String {
        self.headers["etag"].to_str().expect("a tag").to_owned()
    }

    #[track_caller]
    fn is(&self, status: u16, body: Value) {
        assert_eq!((self.status, self.json()), (status, body));
    }
}

#[tokio::test]
async fn long_texts_that_nobody_takes_are_so_many_and_no_more() {
    let metrics = Metrics::default();
    let unsent = metrics.texts_unsent.clone();
    let api = Api::counting(None, metrics).await;
    let records: String = (0..SHORT_MAX / 16).map(|host| format!("host{host} A 192.0.2.1\n")).collect();
    assert_eq!(api.put_zone("example.com", &format!("{ZONE}{records}")).await.status, 200);
    let prefixes: String =
        (0..SHORT_MAX / 8).map(|at| format!("10.{}.{}.0/24,-\n", at / 256, at % 256)).collect();
    let csv = [("content-type", "text/csv")];
    assert_eq!(api.send("PUT", "/v1/partitions/long", &csv, prefixes).await.status, 200);
    let mut answers = Vec::new();
    for turn in 0..TEXTS_SENT_MAX {
        let path = if turn % 2 == 0 { "/v1/zones/example.com" } else { "/v1/partitions/long" };
        let request = Request::get(path).body(Body::empty()).expect("a request");
        answers.push(api.service.call(request).await.expect("the router always answers"));
    }
    assert!(answers.iter().all(|answer| answer.status().as_u16() == 200));
    // Nobody waits for half a minute.
    tokio::time::pause();
    for path in ["/v1/zones/example.com", "/v1/partitions/long"] {
        let refused = api.get(path).await;
        assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"1".parse().expect("a header")));
    }
    assert_eq!(unsent.load(Ordering::Relaxed), 2);
    answers.pop();
    assert_eq!(api.get("/v1/zones/example.com").await.status, 200);
    tokio::time::resume();
}

#[tokio::test]
async fn a_zone_comes_changes_and_goes() {
    let api = Api::new(None).await;
    api.put_zone("Example.COM", ZONE).await.is(200, json!({"generation": 1}));
    let listed = json!([{"origin": "example.com.", "serial": 7, "records": 4, "warnings": []}]);
    api.get("/v1/zones").await.is(200, listed);
    let zone = api.get("/v1/zones/example.com.").await;
    assert_eq!((zone.status, &zone.headers["content-type"]), (200, &"text/dns".parse().expect("a header")));
    let tag = zone.etag();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");

    for (known, status) in
        [(tag.as_str(), 304), (&format!("W/{tag}"), 304), ("*", 304), ("\"x\"", 200), ("x", 400)]
    {
        let again = api.send("GET", "/v1/zones/example.com", &[("if-none-match", known)], "").await;
        assert_eq!((again.status, again.body.is_empty()), (status, status == 304), "{known}");
    }
    let text = zone.body;
    for (method, wanted, status) in [
        ("PUT", "\"x\"", 412),
        ("PUT", "\"*\"", 412),
        ("PUT", "\"x\", \"y\"", 412),
        ("PUT", "x", 400),
        ("PUT", tag.as_str(), 200),
        ("PUT", &format!("\"x\", {tag}"), 200),
        ("PUT", "*", 200),
        ("DELETE", "\"x\"", 412),
        ("DELETE", &tag, 200),
        ("DELETE", "*", 404),
        ("PUT", "*", 412),
        ("PUT", &tag, 412),
    ] {
        let headers = [("content-type", "text/plain; charset=utf-8"), ("if-match", wanted)];
        let answer = api.send(method, "/v1/zones/example.com", &headers, text.clone()).await;
        assert_eq!(answer.status, status, "{method} {wanted}: {}", answer.body);
    }
    assert_eq!(api.get("/v1/zones/example.com").await.status, 404);
    assert_eq!(api.send("DELETE", "/v1/zones/example.com", &[], "").await.status, 404);
    for (unwanted, status) in [("\"x\"", 400), ("*", 200), ("*", 412)] {
        let headers = [("content-type", "text/dns"), ("if-none-match", unwanted)];
        let answer = api.send("PUT", "/v1/zones/example.com", &headers, text.clone()).await;
        assert_eq!(answer.status, status, "{unwanted}: {}", answer.body);
    }
}

#[tokio::test]
async fn the_root_zone_has_a_name_of_its_own() {
    let api = Api::new(None).await;
    assert_eq!(api.put_zone("=2E", ZONE).await.status, 200);
    assert_eq!(api.get("/v1/zones/=2e").await.status, 200);
    assert_eq!(api.get("/v1/zones").await.json()[0]["origin"], ".");
    assert_eq!(api.send("DELETE", "/v1/zones/=2E", &[], "").await.status, 200);
}

#[tokio::test]
async fn all_faults_of_a_body_are_listed_with_their_places() {
    let api = Api::new(None).await;
    let broken = format!("{ZONE}a A 192.0.2.256\nb AAAA x\n");
    let answer = api.put_zone("example.com", &broken).await;
    assert_eq!(answer.status, 422);
    let faults = answer.json()["faults"].clone();
    let places: Vec<_> =
        faults.as_array().expect("faults").iter().map(|fault| fault["line"].clone()).collect();
    assert_eq!(places, [6, 7], "{faults}");
    assert_eq!(api.get("/v1/zones").await.json(), json!([]));

    assert_eq!(api.json("POST", "/v1/regions", json!({"name": ""})).await.status, 422);
    let unknown = api.json("POST", "/v1/regions", json!({"name": "a", "colour": "red"})).await;
    assert_eq!(
        (unknown.status, &unknown.json()["faults"][0]["column"]),
        (422, &json!(9)),
        "{}",
        unknown.body
    );
    let policy =
        api.json("PUT", "/v1/policies/www.example.com", json!({"servers": [{"address": "x", "y": 1}]})).await;
    assert_eq!(
        (policy.status, policy.json()["faults"].as_array().expect("faults").len()),
        (422, 2),
        "{}",
        policy.body
    );
}

#[tokio::test]
async fn regions_partitions_policies_and_servers_work_together() {
    let api = Api::new(None).await;
    assert_eq!(api.put_zone("example.com", ZONE).await.status, 200);
    api.json("POST", "/v1/regions", json!({"name": "europe"}))
        .await
        .is(200, json!({"id": 1, "generation": 2}));
    assert_eq!(api.json("POST", "/v1/regions", json!({"name": "europe"})).await.status, 422);
    api.get("/v1/regions").await.is(200, json!([{"id": 1, "name": "europe"}]));

    let missing = async |name: &str, expected: &str| {
        let problem = json!({"what": format!("there is no partition {name}"), "expected": expected});
        for path in ["", "/lookup?address=192.0.2.1"] {
            api.get(&format!("/v1/partitions/{name}{path}")).await.is(404, problem.clone());
        }
    };
    missing("default", "one to be put first; there is none yet").await;
    let csv = [("content-type", "text/csv")];
    let text = "192.0.2.0/25,europe\n2001:db8::/32,europe\n";
    api.send("PUT", "/v1/partitions/default", &csv, text)
        .await
        .is(200, json!({"prefixes": 2, "generation": 3}));
    missing("other", "one of those there are: default").await;
    assert_eq!(api.send("PUT", "/v1/partitions/other", &csv, "192.0.2.0/33,mars\n").await.status, 422);
    assert_eq!(api.send("PUT", "/v1/partitions/-x", &csv, "192.0.2.0/24,eu\n").await.status, 400);
    assert_eq!(api.get("/v1/partitions/default").await.body, text);
    api.get("/v1/partitions").await.is(200, json!([{"name": "default", "prefixes": 2}]));
    let found = json!({"region": "europe", "id": 1, "prefix": "192.0.2.0/25", "scope": 25});
    api.get("/v1/partitions/default/lookup?address=192.0.2.1").await.is(200, found);
    let outside = api.get("/v1/partitions/default/lookup?address=192.0.2.200").await.json();
    assert_eq!((&outside["region"], &outside["id"]), (&Value::Null, &json!(0)));

    let policy = json!({
        "answers": 1, "order": "rotate", "when_all_down": "empty", "partition": "default", "names": ["www.example.com."],
        "servers": [
            {"address": "198.51.100.1", "default": {"probability": 1.0, "ttl": 30}, "regions": {}},
            {
                "address": "198.51.100.2", "default": {},
                "regions": {"europe": {"probability": 1.0, "ttl": 60}},
            },
        ],
    });
    let put = |text: String| {
        api.send("PUT", "/v1/policies/WWW.example.com", &[("content-type", "application/json")], text)
    };
    // Long ones are read elsewhere than short ones.
    for blank in ["", &" ".repeat(100_000)] {
        let refused = put(format!("{blank}{{\"names\": 7}}")).await;
        assert_eq!((refused.status, refused.json()["faults"].as_array().map(Vec::len)), (422, Some(2)));
    }
    assert_eq!(put(format!("{}{policy}", " ".repeat(100_000))).await.status, 200);
    let kept = api.get("/v1/policies/www.example.com").await;
    assert_eq!((kept.status, kept.json()), (200, policy.clone()));
    let known = api.send("GET", "/v1/policies/www.example.com", &[("if-none-match", &kept.etag())], "").await;
    assert_eq!(known.status, 304);
    api.get("/v1/policies").await.is(200, json!([policy]));
    assert_eq!(api.send("DELETE", "/v1/zones/example.com", &[], "").await.status, 409);
    assert_eq!(api.send("DELETE", "/v1/partitions/default", &[], "").await.status, 409);

    let question = json!({"name": "www.example.com", "type": "A", "client": "192.0.2.1"});
    let why = api.json("POST", "/v1/explain", question.clone()).await.json();
    assert_eq!((&why["region"], &why["scope"]), (&json!("europe"), &json!(25)), "{why}");
    assert_eq!(why["probabilities"], json!({"198.51.100.2": 1.0}));
    assert_eq!((&why["answer"], &why["ttl"]), (&json!(["198.51.100.2"]), &json!(60)));
    for (name, why) in [
        ("ns.example.com", "the zone example.com. answers it with records of its own"),
        ("example.com", "the zone example.com. answers it with records of its own"),
        ("nope.example.com", "the zone example.com. has no such name"),
        ("www.example.net", "it is in none of the zones here"),
    ] {
        let nobody = json!({"name": name, "type": "A", "client": "192.0.2.1"});
        let answer = api.json("POST", "/v1/explain", nobody).await;
        assert!(answer.status == 404 && answer.body.contains(&format!("({why})")), "{}", answer.body);
    }
    let nonsense = json!({"name": "a..b", "type": "A", "client": "192.0.2.1"});
    assert_eq!(api.json("POST", "/v1/explain", nonsense).await.status, 422);

    assert_eq!(api.json("PUT", "/v1/servers/198.51.100.2/state", json!({"up": false})).await.status, 200);
    let servers = json!([{"address": "198.51.100.1", "up": true}, {"address": "198.51.100.2", "up": false}]);
    api.get("/v1/servers").await.is(200, servers);
    assert_eq!(api.json("PUT", "/v1/servers/203.0.113.9/state", json!({"up": false})).await.status, 404);
    let why = api.json("POST", "/v1/explain", question).await.json();
    assert_eq!(why["row"][1]["up"], json!(false), "{why}");

    let status = api.get("/v1/status").await.json();
    let counts = json!({
        "zones": 1, "records": 4, "regions": 1, "partitions": 1, "policies": 1, "names": 1, "servers": 2,
        "servers_down": 1,
    });
    assert_eq!(status["counts"], counts);
    let generation = &status["generation"];
    assert_eq!(&status["workers"][1]["generation"], generation);
    assert_eq!((&status["store"], status["version"].is_string()), (&json!({"ok": true}), true));
    api.get("/v1/health").await.is(200, json!({"generation": generation}));

    assert_eq!(api.send("DELETE", "/v1/policies/www.example.com", &[], "").await.status, 200);
    for method in ["GET", "DELETE"] {
        for path in ["/v1/policies/WWW.example.com", "/v1/policies/www.example.com."] {
            let missing = api.send(method, path, &[], "").await;
            assert_eq!(
                (missing.status, &missing.json()["what"]),
                (404, &json!("there is no policy www.example.com."))
            );
        }
    }
    assert_eq!(api.send("DELETE", "/v1/regions/1", &[], "").await.status, 200);
    for (gone, what) in [(1, "there is no region 1\""), (0, "there is no region 0 that could be removed: ")] {
        let answer = api.send("DELETE", &format!("/v1/regions/{gone}"), &[], "").await;
        assert!(answer.status == 404 && answer.body.contains(what), "{}", answer.body);
    }
    assert_eq!(api.send("DELETE", "/v1/partitions/default", &[], "").await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_as_a_problem() {
    let api = Api::new(None).await;
    let long = "x".repeat(body::JSON_MAX + 1);
    let json = ("content-type", "application/json");
    for (method, path, header, body, status) in [
        ("GET", "/v1/nothing", json, "", 404),
        ("GET", "/", json, "", 404),
        ("GET", "/v1/zones/", json, "", 404),
        ("GET", "/v1/zones/a..b", json, "", 400),
        ("GET", "/v1/zones/%ff", json, "", 400),
        ("PUT", "/v1/zones/a..b", ("content-type", "text/dns"), ZONE, 400),
        ("PUT", "/v1/zones/example.com", json, ZONE, 415),
        ("PUT", "/v1/zones/example.com", ("x-none", ""), ZONE, 415),
        ("PUT", "/v1/policies/www.example.com", ("content-type", "text/plain"), "{}", 415),
        ("PUT", "/v1/policies/www.example.com", json, "{", 422),
        ("POST", "/v1/regions", json, "[\"a\"]", 422),
        ("POST", "/v1/regions", json, &long, 413),
        ("DELETE", "/v1/regions/x", json, "", 400),
        ("DELETE", "/v1/regions/+1", json, "", 400),
        ("DELETE", "/v1/regions/4294967296", json, "", 400),
        ("DELETE", "/v1/regions/0", json, "", 404),
        ("PUT", "/v1/servers/192.0.2/state", json, "{\"up\":true}", 400),
        ("GET", "/v1/partitions/default/lookup", json, "", 400),
        ("GET", "/v1/partitions/default/lookup?address=x", json, "", 400),
        ("GET", "/v1/partitions/default/lookup?address=::1&x=1", json, "", 400),
        ("GET", "/v1/partitions/none/lookup?address=::1", json, "", 404),
        ("GET", "/v1/partitions/none", json, "", 404),
        ("GET", "/v1/partitions/%ff", json, "", 400),
    ] {
        let answer = api.send(method, path, &[header], body.to_owned()).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(answer.body.starts_with("{\"what\":"), "{method} {path}: {}", answer.body);
        assert!(answer.body.matches("a..b").count() <= 1, "what is wrong is told once: {}", answer.body);
    }
}

#[tokio::test]
async fn an_explanation_shows_the_ranks_that_decide() {
    let api = Api::new(None).await;
    assert_eq!(api.put_zone("example.com", ZONE).await.status, 200);
    for region in ["near", "own", "bare"] {
        api.json("POST", "/v1/regions", json!({"name": region})).await;
    }
    let ranks = "@near,192.0.2.1,2\n@near,192.0.2.2,1\n@near,192.0.2.3,2\n@own,192.0.2.1,1\n";
    let text = format!("{ranks}10.0.0.0/8,near\n172.16.0.0/12,own\n192.168.0.0/16,bare\n");
    let csv = [("content-type", "text/csv")];
    assert_eq!(api.send("PUT", "/v1/partitions/topology", &csv, text).await.status, 200);
    let servers: Vec<Value> = (1..5)
        .map(|last| match last {
            4 => json!({"address": "192.0.2.4", "regions": {"own": {"probability": 1}}}),
            _ => json!({"address": format!("192.0.2.{last}")}),
        })
        .collect();
    let policy = json!({"partition": "topology", "order": "nearest", "answers": 0, "servers": servers});
    assert_eq!(api.json("PUT", "/v1/policies/www.example.com", policy).await.status, 200);
    for (client, expected) in [
        (
            "10.0.0.1",
            "the ranks of region near in the partition topology (rank 1: 192.0.2.2, rank 2: 192.0.2.1 192.0.2.3, \
             none: 192.0.2.4); those of one rank are drawn evenly; the nearest first",
        ),
        ("172.16.0.1", "the row of region own; the most probable first"),
        (
            "192.168.0.1",
            "the default column: no server for A has an entry or a rank for region bare; in the order of \
             the policy",
        ),
    ] {
        let question = json!({"name": "www.example.com", "type": "A", "client": client});
        let told = api.json("POST", "/v1/explain", question).await.json();
        assert_eq!(told["why"], expected, "{told}");
    }
}

#[tokio::test]
async fn an_unknown_method_is_told_the_known_ones() {
    let api = Api::new(None).await;
    for (path, allowed) in [
        ("/v1/zones/example.com", "DELETE,GET,HEAD,PUT"),
        ("/v1/regions", "GET,HEAD,POST"),
        ("/v1/explain", "POST"),
        ("/metrics", "GET,HEAD"),
    ] {
        let answer = api.send("PATCH", path, &[], "").await;
        let mut methods: Vec<&str> = answer.headers["allow"].to_str().expect("methods").split(',').collect();
        methods.sort_unstable();
        assert_eq!((answer.status, methods.join(",").as_str()), (405, allowed), "{path}");
    }
}

#[tokio::test]
async fn the_token_is_asked_for_everywhere_but_for_health() {
    let api = Api::new(Some("secret")).await;
    for path in ["/v1/status", "/metrics", "/v1/openapi.json", "/v1/zones", "/v1/nothing"] {
        for (sent, challenge) in [
            (None, r#"Bearer realm="pointsman""#),
            (Some("Basic c2VjcmV0"), r#"Bearer realm="pointsman""#),
            (Some("Bearer secreT"), r#"Bearer realm="pointsman", error="invalid_token""#),
        ] {
            let headers: Vec<_> = sent.map(|sent| ("authorization", sent)).into_iter().collect();
            let answer = api.send("GET", path, &headers, "").await;
            assert_eq!(
                (answer.status, &answer.headers["www-authenticate"]),
                (401, &challenge.parse().unwrap())
            );
            assert!(!answer.body.contains("secret"), "{}", answer.body);
        }
        let answer = api.send("GET", path, &[("authorization", "Bearer secret")], "").await;
        assert_ne!(answer.status, 401, "{path}");
    }
    assert_eq!(api.get("/v1/health").await.status, 200);
    assert_eq!(api.send("POST", "/v1/health", &[], "").await.status, 405, "nothing is told by it");
}

#[tokio::test]
async fn without_a_token_a_host_name_is_refused() {
    let api = Api::new(None).await;
    for (host, status) in [("127.0.0.1:8053", 200), ("localhost:8053", 200), ("rebound.example:8053", 401)] {
        assert_eq!(api.send("GET", "/v1/zones", &[("host", host)], "").await.status, status, "{host}");
    }
    assert_eq!(api.send("GET", "/v1/health", &[("host", "dns.example")], "").await.status, 200);
    let api = Api::new(Some("secret")).await;
    let headers = [("host", "dns.example"), ("authorization", "Bearer secret")];
    assert_eq!(api.send("GET", "/v1/zones", &headers, "").await.status, 200, "the token is enough");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_worker_does_not_serve_yet_is_accepted() {
    let api = Api::new(None).await;
    let held = api.published.seat(1).wake();
    let added = api.json("POST", "/v1/regions", json!({"name": "europe"})).await;
    added.is(202, json!({"id": 1, "generation": 1}));
    assert_eq!(api.get("/v1/status").await.json()["workers"][1]["generation"], 0);
    drop(held);
    api.published.seat(1).park();
    assert_eq!(api.json("POST", "/v1/regions", json!({"name": "asia"})).await.status, 200);
}

#[tokio::test]
async fn a_store_that_is_gone_refuses_changes_and_is_told_of() {
    let api = Api::new(None).await;
    assert_eq!(api.put_zone("example.com", ZONE).await.status, 200);
    std::fs::remove_file(api.folder.join("store.db")).expect("the database is there");
    let refused = api.json("POST", "/v1/regions", json!({"name": "europe"})).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    let store = api.get("/v1/status").await.json()["store"].clone();
    assert_eq!((&store["ok"], store["message"].is_string()), (&json!(false), true), "{store}");
    assert!(api.get("/metrics").await.body.contains("\npointsman_store_ok 0\n"));
    assert_eq!(api.get("/v1/zones/example.com").await.status, 200, "the last generation goes on");
}

#[tokio::test]
async fn every_metric_is_declared_once_and_exported() {
    let api = Api::new(None).await;
    assert_eq!(api.put_zone("example.com", ZONE).await.status, 200);
    for (origin, until) in [("a.example", "20300101000000"), ("b.example", "20290101000000")] {
        let signature = format!("www RRSIG A 13 3 60 {until} 20200101000000 1 {origin}. AAAA\n");
        assert_eq!(api.put_zone(origin, &[ZONE, &signature].concat()).await.status, 200);
    }
    assert_eq!(api.get("/v1/zones").await.json()[0]["signed_until"], 1_893_456_000);
    let health = api.editor.book().generation.health.clone();
    let slot = health.slot(&[192, 0, 2, 1].into(), "web").expect("room");
    health.note(&slot, Outcome::failed(Reason::Refused, "refused"), Duration::ZERO, 7, (1, 1));
    let text = api.get("/metrics").await.body;
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(web::metrics::faults("pointsman_", METRICS), [""; 0]);
    for metric in METRICS {
        let family = metric.name.trim_end_matches("_total");
        assert!(text.contains(&format!("# HELP {family} {}\n", metric.help)), "{family}");
        let samples: Vec<&str> = text
            .lines()
            .filter(|line| line.strip_prefix(metric.name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .collect();
        if metric.kind == web::metrics::Kind::Histogram {
            assert!(text.contains(&format!("\n{family}_bucket{{le=\"+Inf\"}} ")), "{family}");
            continue;
        }
        // What tells of files and services that are chosen has none where nobody chose any, and answers are counted where
        // connections are served.
        let others = [
            "pointsman_partition_",
            "pointsman_external_",
            "pointsman_api_responses",
            "pointsman_worker_frames_",
        ];
        let is_absent = others.iter().any(|other| family.starts_with(other));
        assert_eq!(is_absent, samples.is_empty(), "{family}: {samples:?}");
        for sample in samples {
            assert!(metric.labels.iter().all(|label| sample.contains(&format!("{label}=\""))), "{sample}");
            assert_eq!(sample.contains('{'), !metric.labels.is_empty(), "{sample}");
        }
    }
    for line in [
        "pointsman_generation 3",
        "pointsman_zones 3",
        "pointsman_worker_generation{worker=\"1\"} 3",
        "pointsman_signatures_expire_timestamp_seconds{zone=\"b.example.\"} 1861920000",
        "pointsman_probe_passing{server=\"192.0.2.1\",probe=\"web\"} 0",
        "pointsman_health_epoch 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_zone_that_is_served_is_in_the_list() {
    let api = Api::new(None).await;
    let signed = "@ DNSKEY 257 3 13 AAAA\nwww RRSIG A 13 3 60 20200101000000 20190101000000 1 b. AAAA\n";
    for (origin, more) in [("a", ""), ("b", signed)] {
        assert_eq!(api.put_zone(origin, &[ZONE, more].concat()).await.status, 200);
    }
    let policy = json!({"servers": [{"address": "192.0.2.1"}]});
    assert_eq!(api.json("PUT", "/v1/policies/www.a", policy).await.status, 200);
    let warnings = async |api: &Api| {
        let listed = api.get("/v1/zones").await.json();
        [0, 1].map(|zone: usize| listed[zone]["warnings"].as_array().expect("a list").clone())
    };
    let [first, second] = warnings(&api).await;
    assert!(first.is_empty(), "{first:?}");
    let [unproven, expired] = &second[..] else { panic!("{second:?}") };
    assert!(unproven.as_str().expect("words").contains("the apex has no NSEC record"), "{unproven}");
    assert!(expired.as_str().expect("words").contains("a signature has expired"), "{expired}");
    let secondary = Secondary { zones: [b"\x01a\0".to_vec()].into(), ..Secondary::default() };
    let secondaries = Arc::new(Secondaries(vec![secondary]));
    api.editor.import_some(&[Import::Secondaries(secondaries)]).await.expect("it is no fault");
    let [first, _] = warnings(&api).await;
    let [untaken] = &first[..] else { panic!("{first:?}") };
    assert!(untaken.as_str().expect("words").contains("it has policies"), "{untaken}");
    assert!(api.get("/metrics").await.body.contains("\npointsman_zones_warned 2\n"));
}

#[tokio::test]
async fn a_change_is_in_the_histogram_once_it_is_served() {
    let updates = Arc::new(Histogram::new(&crate::counters::UPDATES_US));
    [3_000, 60_000_000].into_iter().for_each(|us| updates.observe(us));
    let api = Api::counting(None, Metrics { updates, ..Metrics::default() }).await;
    let text = api.get("/metrics").await.body;
    for line in ["bucket{le=\"0.002\"} 0", "bucket{le=\"0.005\"} 1", "bucket{le=\"+Inf\"} 2", "sum 60.003"] {
        let line = format!("pointsman_update_seconds_{line}");
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn the_page_of_metrics_is_fresh() {
    ::tests::fresh::check("docs/reference/metrics.md", &metrics::page());
}

#[tokio::test]
async fn the_workers_counts_are_summed() {
    let metrics = Metrics { udp: vec![Arc::default(), Arc::default()], ..Metrics::default() };
    for worker in &metrics.udp {
        worker.queries.add(3);
        worker.answered(&[0, 0, 0x82, 3, 0, 0, 0, 0, 0, 0, 0, 0], [None; 2]);
        worker.no_room.add(1);
    }
    let api = Api::counting(None, metrics).await;
    let status = api.get("/v1/status").await.json();
    let counters = &status["counters"];
    assert_eq!((&counters["queries"], &counters["truncated"]), (&json!(6), &json!(2)));
    assert_eq!(counters["answers"], json!({"NXDOMAIN": 2}));
    assert_eq!((&counters["dropped"]["no_room"], &counters["dropped"]["no_query"]), (&json!(2), &json!(0)));
    assert_eq!(status["tcp"]["queries"], 0);
    assert_eq!(status["workers"][1], json!({"worker": 1, "generation": 0, "queries": 3, "batches": 0}));
}

#[tokio::test]
async fn connections_are_served_until_the_shutdown() {
    let api = Api::new(None).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = Shutdown::new();
    let (router, counters) = (router(api.editor.clone(), None, Metrics::default()), Arc::default());
    let serving = tokio::spawn(web::serve(listener, router, |_| true, counters, shutdown.clone()));
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"{\"generation\":0}") {
        assert_ne!(stream.read_buf(&mut answer).await.expect("an answer"), 0);
    }
    shutdown.begin();
    serving.await.expect("no panic");
    assert_eq!(stream.read_buf(&mut answer).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_ends_the_connection() {
    let api = Api::new(None).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let counters = Arc::new(Counters::default());
    let router = router(api.editor.clone(), None, Metrics::default());
    tokio::spawn(web::serve(listener, router, |_| true, counters.clone(), Shutdown::new()));
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    for (sent, expected) in [(&b"GET /v1/health HTTP/1.1\r\nhost:"[..], [1, 0]), (b"\0\r\n\r\n", [1, 1])] {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        stream.write_all(sent).await.expect("the beginning of a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("the end of the connection");
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        // The connection is gone before its task has counted it.
        while [&counters.head_late, &counters.malformed].map(count) != expected {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn answers_are_counted_by_status() {
    let api = Api::new(None).await;
    let metrics = Metrics::default();
    let counters = metrics.api.clone();
    let router = router(api.editor.clone(), Some("secret".into()), metrics);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut stream = tokio::net::TcpStream::connect(listener.local_addr().expect("an address"))
        .await
        .expect("a connection");
    tokio::spawn(web::serve(listener, router, |_| true, counters, Shutdown::new()));
    let token = "authorization: Bearer secret\r\n";
    let last = "authorization: Bearer secret\r\nconnection: close\r\n";
    for (path, headers) in
        [("/v1/health", ""), ("/v1/status", ""), ("/v1/zones", ""), ("/nowhere", token), ("/metrics", last)]
    {
        let asked = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        stream.write_all(asked.as_bytes()).await.expect("a request");
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("all answers");
    for (status, count) in [(200, 1), (401, 2), (404, 1)] {
        let line = format!("pointsman_api_responses_total{{status=\"{status}\"}} {count}");
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
