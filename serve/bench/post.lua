-- wrk: POST one file, count the statuses, and look for Retry-After on every answer that is not 200.
local counts = {}
local missing = 0
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.body = file:read("*a")
  file:close()
  wrk.method = "POST"
  wrk.headers["Content-Type"] = args[2]
  report = ""
end

function response(status, headers, body)
  if status ~= 200 then
    counts[status] = (counts[status] or 0) + 1
    if not headers["retry-after"] then missing = missing + 1 end
    report = ""
    for code, count in pairs(counts) do report = report .. "status " .. code .. " " .. count .. "\n" end
    report = report .. "without Retry-After " .. missing .. "\n"
  end
end

function done(summary, latency, requests)
  for _, thread in ipairs(threads) do io.write(thread:get("report")) end
end
