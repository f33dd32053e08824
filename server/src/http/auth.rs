//! `/auth`: signing in and out.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    Json,
    extract::{ConnectInfo, Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use turnfast_shared::{
    Code, Problem,
    api::{LoginRequest, Me},
};

use super::{
    body,
    extract::{Origin, cookie_name, cross_origin, is_secure, origin},
    problem::ApiError,
};
use crate::{
    app::App,
    auth::{Caller, LoginError, SignedIn},
    config::{Config, Secret},
};

/// Longest body of a login, in bytes.
const MAX_LOGIN: usize = 16 * 1024;
/// How long browsers keep the cookie, in seconds: the longest that they take (400 days). The record says when a session ends.
const COOKIE_AGE: u32 = 400 * 24 * 60 * 60;

/// Who the caller is
#[utoipa::path(get, path = "/auth/me", tag = "auth",
    responses((status = 200, body = Me, description = "The user.")),
    extensions(("x-access" = json!("signed-in"))))]
pub async fn me(caller: Caller) -> Response {
    answer(caller)
}

/// Signs a browser in
///
/// Wrong names and wrong passwords get the same answer in the same time.
#[utoipa::path(post, path = "/auth/login", tag = "auth",
    request_body = LoginRequest,
    responses((status = 200, body = Me, description = "The user.", headers(("Set-Cookie" = String, description = "The session.")))),
    extensions(("x-access" = json!("public")), ("x-problems" = json!(["unauthenticated", "cross_origin", "rate_limited", "storage_unavailable"]))))]
pub async fn login(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    // Signing a browser in to the attacker's account is an attack too. Programs send no origin.
    if origin(&parts, &app.config) == Origin::Other {
        return Err(cross_origin());
    }
    if !is_json(&parts.headers) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "The body of a login is application/json."));
    }
    let body = body::whole(body, MAX_LOGIN).await?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (name, password) = (text(&body, "name")?, text(&body, "password")?);
    // Not by its name: what came as a field may be a password in the wrong place.
    if body.as_object().is_some_and(|fields| fields.len() > 2) {
        return Err(ApiError::new(Code::InvalidRequest, "A login takes `name` and `password` and nothing else."));
    }
    let signed_in = app.auth.login(name, Secret::new(password.to_owned()), client(&parts)).await.map_err(refused)?;
    let cookie = set_cookie(&app.config, signed_in.session.expose(), COOKIE_AGE)?;
    let SignedIn { user: id, name, .. } = signed_in;
    Ok(([(header::SET_COOKIE, cookie)], no_store(Json(Me { id, name }))).into_response())
}

/// Signs a browser out
///
/// Ends the session of the cookie. A token stays.
#[utoipa::path(post, path = "/auth/logout", tag = "auth",
    responses((status = 204, description = "Signed out.", headers(("Set-Cookie" = String, description = "Removes the session.")))),
    extensions(("x-access" = json!("signed-in"))))]
pub async fn logout(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, ApiError> {
    app.auth.logout(&caller).await?;
    let cookie = set_cookie(&app.config, "", 0)?;
    Ok(([(header::SET_COOKIE, cookie)], no_store(StatusCode::NO_CONTENT)).into_response())
}

/// Signs in with a one-time link
///
/// A person follows it, so whatever comes of it is a page. HEAD uses nothing up, and neither does a browser that fetches pages in
/// advance: that is how programs look at links.
#[utoipa::path(get, path = "/auth/link/{token}", tag = "auth",
    params(("token" = String, Path, description = "The secret of the link.")),
    responses((status = 303, description = "To the page: signed in, or with `?signin=expired`.", headers(("Location" = String), ("Set-Cookie" = String, description = "The session.")))),
    extensions(("x-access" = json!("public")), ("x-problems" = json!(["storage_unavailable"]))))]
pub async fn link(
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    if method == Method::HEAD {
        return Ok(see_other("/"));
    }
    if is_in_advance(&headers) {
        // Not kept by a browser, which asks again when the person follows the link.
        return Ok(no_store(StatusCode::SERVICE_UNAVAILABLE));
    }
    let signed_in = match token {
        Ok(Path(token)) => app.auth.redeem_link(&token).await?,
        Err(_not_text) => None,
    };
    let Some(signed_in) = signed_in else { return Ok(see_other("/?signin=expired")) };
    let cookie = set_cookie(&app.config, signed_in.session.expose(), COOKIE_AGE)?;
    Ok(([(header::SET_COOKIE, cookie)], see_other("/")).into_response())
}

/// Whether a browser fetches a page that nobody has asked for yet.
fn is_in_advance(headers: &HeaderMap) -> bool {
    let says = |name| headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|value| value.contains("prefetch")));
    says("sec-purpose") || says("purpose")
}

fn answer(caller: Caller) -> Response {
    no_store(Json(Me { id: caller.user, name: caller.name }))
}

/// The page's address has a secret in it, which must not go on to anywhere.
fn see_other(to: &'static str) -> Response {
    no_store((StatusCode::SEE_OTHER, [(header::LOCATION, to), (header::REFERRER_POLICY, "no-referrer")]))
}

fn no_store(response: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], response).into_response()
}

fn refused(error: LoginError) -> ApiError {
    match error {
        LoginError::Wrong => ApiError::new(Code::Unauthenticated, "The name or the password is wrong."),
        LoginError::TooMany { retry_after } => {
            let detail = format!("Too many attempts to sign in. Try again in {retry_after} s.");
            ApiError(Box::new(Problem::new(Code::RateLimited, detail)), Some(retry_after))
        }
        LoginError::Store(error) => error.into(),
    }
}

/// A text field of the body. By hand, for a parser's message could repeat a password.
fn text<'b>(body: &'b Value, field: &str) -> Result<&'b str, ApiError> {
    // No name and no password has a NUL, and databases take none in text.
    body.get(field).and_then(Value::as_str).filter(|text| !text.contains('\0')).ok_or_else(|| {
        let detail = format!("`{field}` takes text: the body is {{\"name\": \"…\", \"password\": \"…\"}}.");
        let mut problem = Problem::new(Code::InvalidRequest, detail);
        problem.field = Some(field.to_owned());
        ApiError(Box::new(problem), None)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The client's address, for counting attempts. A proxy on this machine appends whom it speaks for; from elsewhere that header is
/// anyone's claim.
fn client(parts: &Parts) -> Option<IpAddr> {
    let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    let peer = peer.ip().to_canonical();
    if !peer.is_loopback() {
        return Some(peer);
    }
    let forwarded = parts.headers.get_all("x-forwarded-for").into_iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()).and_then(|value| value.rsplit(',').next());
    Some(last.and_then(|address| address.trim().parse().ok()).unwrap_or(peer))
}

fn set_cookie(config: &Config, value: &str, age: u32) -> Result<HeaderValue, ApiError> {
    let secure = if is_secure(config) { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}", cookie_name(config));
    let mut cookie =
        HeaderValue::try_from(cookie).map_err(|_| ApiError::new(Code::Internal, "The session cookie cannot be written."))?;
    cookie.set_sensitive(true);
    Ok(cookie)
}

#[cfg(test)]
mod tests;
