//! What every face answers alike, from a router with a route of each kind.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::routing::{get, post};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::path::Segments;
use crate::reply::refuse_others;

#[tokio::test]
async fn refusals_are_problems_whatever_is_refused() {
    let pair = |Segments((a, b)): Segments<(String, String)>| async move { format!("{a} and {b}") };
    let routes = Router::new()
        .route("/open", get(|| async { "open" }))
        .route("/one/{of}", get(|Segments(of): Segments<String>| async move { of }))
        .route("/two/{a}/{b}", post(pair));
    let service = TowerToHyperService::new(refuse_others(crate::host::local(routes, Some("/open")), "/open"));
    let (here, page) = (("host", "[::1]:80"), ("origin", "http://evil.example"));
    for (method, path, header, status, said) in [
        ("GET", "/one/a%20b%2f", here, 200, "a b/"),
        ("POST", "/two/a/%c3%a9", here, 200, "a and é"),
        ("GET", "/one/%ff", here, 400, "the path /one/%ff is not UTF-8 when decoded"),
        ("POST", "/two/%ff/a", here, 400, "the path /two/%ff/a is not UTF-8 when decoded"),
        ("GET", "/three?a", here, 404, "there is no /three"),
        ("GET", "/two/a/b", here, 405, "/two/a/b has no method GET"),
        ("GET", "/one/a", page, 200, "a"),
        (
            "POST",
            "/two/a/b",
            page,
            403,
            "what is for this machine alone is not changed for a page of another origin",
        ),
        (
            "GET",
            "/one/a",
            ("host", "a.example"),
            401,
            "what is for this machine alone is not served under a host's name",
        ),
        ("GET", "/open", ("host", "a.example"), 200, "open"),
    ] {
        let mut request = Request::builder().method(method).uri(path).header(header.0, header.1);
        if header.0 != "host" {
            request = request.header(HOST, here.1);
        }
        let answer = service.call(request.body(Body::empty()).expect("a request")).await.expect("it answers");
        let answered = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let told = match answered.is_success() {
            true => String::from_utf8_lossy(&body).into_owned(),
            false => serde_json::from_slice::<api::Problem>(&body).expect("a problem").what,
        };
        assert_eq!((answered.as_u16(), told.as_str()), (status, said), "{method} {path} {header:?}");
    }
}
