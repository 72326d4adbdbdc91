#include "base/text.h"

#include "base/json.h"
#include "check.h"

using bitedge::is_json_object;
using bitedge::valid_utf8;

TEST(accepts_utf8) {
  for (const char* text :
       {"", "plain", "Z\xc3\xbcrich", "\xe2\x82\xac", "\xf0\x9f\x90\x88", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    CHECK(valid_utf8(text));
  }
}

TEST(refuses_what_is_not_utf8) {
  for (const char* text : {"\x80", "\xc3", "\xc3(", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe"}) {
    CHECK(!valid_utf8(text));
  }
}

TEST(quotes_on_one_line) {
  CHECK_EQ(bitedge::quoted("a\nb\x80"), "'a?b?'");
  CHECK_EQ(bitedge::quoted(std::string(61, 'x')), "'" + std::string(60, 'x') + "...'");
}

TEST(accepts_json_objects) {
  for (const char* text :
       {"{}", " { } ", R"({"a":1})", R"({"a":[1,-2.5,3e+7,0.1E-3,true,false,null,"x\n\u00e4\"\/"],"b":{"c":[]}})"}) {
    CHECK(is_json_object(text));
  }
  CHECK(is_json_object("{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}"));
}

TEST(refuses_what_is_no_json_object) {
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           "}",
                           "{}}",
                           "{a:1}",
                           "{'a':1}",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({"a":[1,]})",
                           R"({"a":01})",
                           R"({"a":+1})",
                           R"({"a":.5})",
                           R"({"a":1.})",
                           R"({"a":1e})",
                           R"({"a":-})",
                           R"({"a":"\x"})",
                           R"({"a":"\u12g4"})",
                           "{\"a\":\"\n\"}",
                           R"({"a":"b)",
                           R"({"a":tru})",
                           R"({"a":NaN})",
                           R"({"a":1 "b":2})"}) {
    CHECK(!is_json_object(text));
  }
  CHECK(!is_json_object("{\"a\":" + std::string(100000, '[')));
}

TEST(writes_what_it_accepts) {
  bitedge::JsonWriter json;
  json.open('{').key("a\"\\\n\x01").string("\xc3\xbc").key("b").open('[').number(1).integer(-2).boolean(true).null();
  json.open('{').close('}').open('[').close(']').close(']').key("c").raw("{\"d\":1}").close('}');
  CHECK_EQ(json.text(), "{\"a\\\"\\\\\\u000a\\u0001\":\"\xc3\xbc\",\"b\":[1,-2,true,null,{},[]],\"c\":{\"d\":1}}");
  CHECK(is_json_object(json.text()));
}
