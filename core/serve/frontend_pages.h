/* Private to the frontend: its pages. */
#ifndef ROLLTOP_SERVE_FRONTEND_PAGES_H
#define ROLLTOP_SERVE_FRONTEND_PAGES_H

#include "core/serve/frontend_local.h"

void route_live(Frontend *frontend, HttpExchange *exchange);
void route_frontend_health(Frontend *frontend, HttpExchange *exchange);
void route_frontend_models(Frontend *frontend, HttpExchange *exchange);
void route_frontend_ready(Frontend *frontend, HttpExchange *exchange);

#endif
