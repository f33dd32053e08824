//! The web app: its page, and the files that the page loads. Knows nothing of the API.

use std::borrow::Cow;

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rust_embed::RustEmbed;
use turnfast_shared::Code;

use super::problem::ApiError;

/// What `cargo xtask web` built: inside the binary, but read from the folder in builds with debug assertions.
#[derive(RustEmbed)]
#[folder = "$TURNFAST_WEB_DIR"]
#[allow_missing = true]
struct WebApp;

/// A file of the web app.
struct File {
    bytes: Cow<'static, [u8]>,
    /// SHA-256 of the bytes.
    hash: [u8; 32],
}

impl File {
    fn find(name: &str) -> Option<Self> {
        WebApp::get(name).map(|file| Self { hash: file.metadata.sha256_hash(), bytes: file.data })
    }
}

const PAGE: &str = "index.html";

/// The page of a server that was built without its web app.
const NO_WEB_APP: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Turnfast</title>
<h1>Turnfast</h1>
<p>The server runs, but it was built without its web app. <code>cargo xtask build</code> makes a binary that has it, and
<code>cargo xtask serve</code> builds and starts one. The API works all the same.</p>
</html>
";

/// Scripts, styles and connections of this origin only, and no inline script. `wasm-unsafe-eval` lets the page compile its wasm.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
    img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // A sign-in link must not travel to another site.
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Answers every path that no other route takes: to be mounted as the fallback, behind the API's own 404s.
pub fn router() -> Router {
    Router::new().fallback(serve)
}

async fn serve(request: Request) -> Response {
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    let mut response = if method == Method::GET || method == Method::HEAD {
        find(path, headers).unwrap_or_else(|| ApiError::not_found().into_response())
    } else {
        // Every path below this router could be a page.
        let refused = ApiError::new(Code::MethodNotAllowed, "Pages and files are read with GET or HEAD.");
        ([(header::ALLOW, "GET,HEAD")], refused).into_response()
    };
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The file or page at `path`; `None`: there is none.
fn find(path: &str, headers: &HeaderMap) -> Option<Response> {
    let name = path.trim_start_matches('/');
    if !name.is_empty()
        && let Some(file) = File::find(name)
    {
        return Some(answer(name, file, File::find, headers));
    }
    // Paths that exist in the browser only show the page; a missing script must not.
    if !name.is_empty() && !accepts(headers, &header::ACCEPT, "text/html") {
        return None;
    }
    Some(match File::find(PAGE) {
        Some(page) => answer(PAGE, page, File::find, headers),
        None => ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")], NO_WEB_APP)
            .into_response(),
    })
}

/// `file` as this request wants it: packed where the client unpacks, not at all where it has it already.
fn answer(name: &str, file: File, get: impl Fn(&str) -> Option<File>, headers: &HeaderMap) -> Response {
    let packed = if accepts(headers, &header::ACCEPT_ENCODING, "gzip") { get(&format!("{name}.gz")) } else { None };
    let is_packed = packed.is_some();
    let file = packed.unwrap_or(file);
    // The packed form is another representation, and so has another tag.
    let tag: String = file.hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");

    let unchanged = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value.split(',').any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == tag)
        })
    });
    let mut response = if unchanged { StatusCode::NOT_MODIFIED.into_response() } else { Body::from(file.bytes).into_response() };
    let out = response.headers_mut();
    if !unchanged {
        if let Ok(value) = HeaderValue::from_str(content_type(name).as_ref()) {
            out.insert(header::CONTENT_TYPE, value);
        }
        if is_packed {
            out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        out.insert(header::ETAG, value);
    }
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let caching = if has_hash(name) { "public, max-age=31536000, immutable" } else { "no-cache" };
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    response
}

fn content_type(name: &str) -> String {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    if mime.type_() == mime_guess::mime::TEXT { format!("{mime}; charset=utf-8") } else { mime.to_string() }
}

/// Whether the name says which content it stands for: `NAME-<16 hex digits>.ENDING`, as `cargo xtask web` gives it.
fn has_hash(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let stem = name.split('.').next().unwrap_or(name);
    stem.rsplit_once('-').is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Whether a list header names `wanted` and does not rule it out with `q=0`.
fn accepts(headers: &HeaderMap, list: &HeaderName, wanted: &str) -> bool {
    headers.get_all(list).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        named && quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|quality| quality > 0.0))
    })
}

#[cfg(test)]
mod tests {

    use tower::ServiceExt;
    use turnfast_shared::Problem;

    use super::*;

    async fn ask(method: &str, path: &str, accept: &str) -> Response {
        let request = Request::builder().method(method).uri(path).header("accept", accept).body(Body::empty()).unwrap();
        router().oneshot(request).await.unwrap()
    }

    fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    async fn body(response: Response) -> Vec<u8> {
        axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
    }

    /// A folder with one file and its packed form.
    fn folder(name: &str) -> Option<File> {
        let (bytes, hash): (&[u8], u8) = match name {
            "app-0123456789abcdef.css" | PAGE => (b"plain", 1),
            "app-0123456789abcdef.css.gz" | "index.html.gz" => (b"packed", 2),
            _ => return None,
        };
        Some(File { bytes: Cow::Borrowed(bytes), hash: [hash; 32] })
    }

    fn answer_from_folder(name: &str, headers: &[(HeaderName, &'static str)]) -> Response {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        answer(name, folder(name).unwrap(), folder, &headers)
    }

    #[tokio::test]
    async fn paths_of_the_browser_show_the_page_and_all_others_a_problem() {
        let page = "text/html,application/xhtml+xml,*/*;q=0.8";
        for path in ["/", "/demo/assistant/018f", "/sign-in"] {
            let response = ask("GET", path, page).await;
            assert_eq!(response.status(), 200, "{path}");
            assert_eq!(header(&response, "content-type"), Some("text/html; charset=utf-8"), "{path}");
        }
        assert_eq!(ask("GET", "/", "*/*").await.status(), 200);
        for (method, path, accept, code) in [
            ("GET", "/gone-0123456789abcdef.js", "*/*", Code::NotFound),
            ("GET", "/../Cargo.toml", "*/*", Code::NotFound),
            ("POST", "/", page, Code::MethodNotAllowed),
            ("PUT", "/", "*/*", Code::MethodNotAllowed),
            ("DELETE", "/demo", page, Code::MethodNotAllowed),
            ("POST", "/demo/assistant/018f", "*/*", Code::MethodNotAllowed),
        ] {
            let response = ask(method, path, accept).await;
            assert_eq!(response.status(), code.status(), "{method} {path}");
            assert_eq!(header(&response, "allow"), (code == Code::MethodNotAllowed).then_some("GET,HEAD"), "{method} {path}");
            assert_eq!(header(&response, "content-type"), Some("application/problem+json"), "{method} {path}");
            let problem: Problem = serde_json::from_slice(&body(response).await).unwrap();
            assert_eq!(problem.code, code);
        }
    }

    #[tokio::test]
    async fn the_page_is_guarded() {
        let response = ask("GET", "/", "text/html").await;
        let policy = header(&response, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self' 'wasm-unsafe-eval';"), "{policy}");
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
        assert_eq!(header(&response, "x-content-type-options"), Some("nosniff"));
        assert_eq!(header(&response, "referrer-policy"), Some("no-referrer"));
    }

    #[tokio::test]
    async fn hashed_names_are_kept_for_ever_and_the_page_is_asked_for_again() {
        let file = answer_from_folder("app-0123456789abcdef.css", &[]);
        assert_eq!(header(&file, "cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(header(&file, "content-type"), Some("text/css; charset=utf-8"));
        assert_eq!(header(&answer_from_folder(PAGE, &[]), "cache-control"), Some("no-cache"));
        assert!(
            !has_hash("app-0123456789abcde.css") && !has_hash("app-0123456789ABCDEF.css") && has_hash("a/b-0123456789abcdef.js")
        );
    }

    #[tokio::test]
    async fn the_packed_form_goes_to_who_unpacks_it() {
        for (accepted, packed) in
            [("gzip, deflate, br", true), ("br;q=1.0, gzip;q=0.5", true), ("br", false), ("gzip;q=0", false), ("", false)]
        {
            let response = answer_from_folder(PAGE, &[(header::ACCEPT_ENCODING, accepted)]);
            assert_eq!(header(&response, "content-encoding"), packed.then_some("gzip"), "{accepted}");
            assert_eq!(header(&response, "content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(header(&response, "vary"), Some("accept-encoding"));
            assert_eq!(body(response).await, if packed { b"packed".as_slice() } else { b"plain" });
        }
    }

    #[tokio::test]
    async fn what_the_browser_has_is_not_sent_again() {
        let first = answer_from_folder(PAGE, &[]);
        let tag: &'static str = Box::leak(header(&first, "etag").unwrap().to_owned().into_boxed_str());
        let again = answer_from_folder(PAGE, &[(header::IF_NONE_MATCH, tag)]);
        assert_eq!(again.status(), 304);
        assert_eq!(header(&again, "etag"), Some(tag));
        let packed = answer_from_folder(PAGE, &[(header::IF_NONE_MATCH, tag), (header::ACCEPT_ENCODING, "gzip")]);
        assert_eq!(packed.status(), 200, "another representation");
    }
}
