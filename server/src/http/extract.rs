//! Who makes a request: the [`Caller`] extractor, and the guard against requests that another site makes a browser send.
//!
//! A browser attaches its cookie to requests that any page makes it send. So a request that changes something and shows nothing
//! but the cookie must say that it comes from here: with an `Origin` that is `public_url` or, where none is configured, the `Host` it
//! was sent to; and, where the browser sends `Sec-Fetch-Site`, with that too. Browsers send `Origin` with every POST, PUT, PATCH and
//! DELETE; one that sends neither is refused. Bearer tokens are attached by nobody but their holder and need none of this.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Method, header, request::Parts},
};
use turnfast_shared::Code;

use super::problem::ApiError;
use crate::{
    app::App,
    auth::{Caller, Via},
    config::{Config, public_origin},
};

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let found = match credential(&parts.headers, &app.config) {
            Some(Credential::Token(token)) => app.auth.by_token(token).await?,
            Some(Credential::Session(cookie)) => app.auth.by_session(cookie).await?,
            None => None,
        };
        let caller = found.ok_or_else(|| ApiError::new(Code::Unauthenticated, "Sign in, or send a valid bearer token."))?;
        if caller.via == Via::Cookie && !is_safe(&parts.method) && origin(parts, &app.config) != Origin::Same {
            return Err(cross_origin());
        }
        Ok(caller)
    }
}

/// The answer to a request that another site made a browser send.
pub(super) fn cross_origin() -> ApiError {
    ApiError::new(Code::CrossOrigin, "This request does not come from this server's own pages. Programs use a bearer token.")
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// What a request shows. The header wins, as it was put there on purpose: a bad token is not made good by a cookie.
enum Credential<'h> {
    Token(&'h str),
    Session(&'h str),
}

fn credential<'h>(headers: &'h HeaderMap, config: &Config) -> Option<Credential<'h>> {
    // Another scheme is not ours: a proxy in front may ask for a password of its own.
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, token)) = authorization.and_then(|value| value.split_once(' '))
        && scheme.eq_ignore_ascii_case("bearer")
    {
        return Some(Credential::Token(token.trim()));
    }
    let name = cookie_name(config);
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| Credential::Session(value))
}

/// Whether browsers reach this server over https, and the cookie is for nothing else.
pub(super) fn is_secure(config: &Config) -> bool {
    config.server.public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
}

/// The session cookie. `__Host-` makes browsers refuse one that a neighbouring host or plain http tries to set.
pub(super) fn cookie_name(config: &Config) -> &'static str {
    if is_secure(config) { "__Host-turnfast_session" } else { "turnfast_session" }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From a page of this server, or from the address bar.
    Same,
    /// From another site's page.
    Other,
    /// It does not say.
    Unknown,
}

/// Where the request comes from.
pub(super) fn origin(parts: &Parts, config: &Config) -> Origin {
    let site = parts.headers.get("sec-fetch-site").map(|site| site == "same-origin" || site == "none");
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(|authority| authority.as_str()));
    let named = parts.headers.get(header::ORIGIN).map(|origin| {
        origin.to_str().is_ok_and(|origin| match &config.server.public_url {
            Some(public_url) => public_origin(origin).as_deref() == Some(public_url),
            None => host.is_some_and(|host| is_origin_of(origin, host)),
        })
    });
    match (site, named) {
        (Some(false), _) | (_, Some(false)) => Origin::Other,
        (None, None) => Origin::Unknown,
        _ => Origin::Same,
    }
}

/// Whether `origin` is that of pages at `host`. The scheme is not known here, where a proxy may have taken off the encryption; its
/// default port may be left out on either side.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let Some((scheme, _)) = origin.split_once("://") else { return false };
    let here = public_origin(&format!("{scheme}://{host}"));
    here.is_some() && public_origin(origin) == here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_that_of_its_host_alone() {
        for (origin, host) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://chat.example.org", "chat.example.org:80"),
            ("https://chat.example.org", "chat.example.org"),
            ("https://Chat.example.org:443", "chat.example.org"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert!(is_origin_of(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "chat.example.org"),
            ("", ""),
            ("https://", ""),
            ("https://chat.example.org.evil.example", "chat.example.org"),
            ("https://evil.example", "chat.example.org"),
            ("http://127.0.0.1:8081", "127.0.0.1:8080"),
            ("http://chat.example.org:443", "chat.example.org"),
            ("ftp://chat.example.org", "chat.example.org"),
            ("https://chat.example.org", "evil.example@chat.example.org"),
            ("https://chat.example.org/x", "chat.example.org"),
        ] {
            assert!(!is_origin_of(origin, host), "{origin} {host}");
        }
    }

    #[test]
    fn the_public_address_is_the_only_one_where_there_is_one() {
        let mut config = Config::load(&crate::config::Overrides::default()).unwrap();
        let mut of = |public_url: Option<&str>, host: &str, headers: &[(&str, &str)]| {
            config.server.public_url = public_url.map(str::to_owned);
            let mut request = http::Request::post("/").header("host", host);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            origin(&request.body(()).unwrap().into_parts().0, &config)
        };
        let public = Some("https://chat.example.org");
        let inside = "127.0.0.1:8080";
        for (public_url, host, headers, expected) in [
            (None, inside, &[("origin", "http://127.0.0.1:8080")][..], Origin::Same),
            (None, inside, &[("origin", "https://127.0.0.1:8080")], Origin::Same),
            (None, inside, &[("origin", "http://127.0.0.1")], Origin::Other),
            (None, inside, &[("origin", "http://localhost:8080")], Origin::Other),
            (None, inside, &[("origin", "null")], Origin::Other),
            (None, inside, &[("origin", "null"), ("sec-fetch-site", "none")], Origin::Other),
            (None, inside, &[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")], Origin::Same),
            (None, inside, &[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "cross-site")], Origin::Other),
            (None, inside, &[("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")], Origin::Other),
            (None, inside, &[("sec-fetch-site", "same-origin")], Origin::Same),
            (None, inside, &[("sec-fetch-site", "none")], Origin::Same),
            (None, inside, &[("sec-fetch-site", "same-site")], Origin::Other),
            (None, inside, &[], Origin::Unknown),
            (public, "chat.example.org", &[("origin", "https://chat.example.org")], Origin::Same),
            (public, inside, &[("origin", "https://chat.example.org")], Origin::Same),
            (public, inside, &[("origin", "https://chat.example.org:443")], Origin::Same),
            (public, "chat.example.org", &[("origin", "http://chat.example.org")], Origin::Other),
            (public, "chat.example.org", &[("origin", "https://chat.example.org:8443")], Origin::Other),
            (public, "chat.example.org", &[("origin", "https://other.example.org")], Origin::Other),
            (public, inside, &[("origin", "http://127.0.0.1:8080")], Origin::Other),
            (public, "evil.example", &[("origin", "https://evil.example")], Origin::Other),
            (public, "chat.example.org", &[("origin", "null")], Origin::Other),
            (public, "chat.example.org", &[], Origin::Unknown),
        ] {
            assert_eq!(of(public_url, host, headers), expected, "{public_url:?} {host} {headers:?}");
        }
    }
}
